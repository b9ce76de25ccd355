//! HTML, as far as a page needs it.

use std::fmt::Write as _;

/// Text that stands for itself.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A table: its head, and rows of as many cells. The first column is text, the others are numbers.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = String::from("<table><tr>");
    for cell in head {
        let _ = write!(html, "<th>{}</th>", escape(cell));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

/// Names and what they stand for.
pub fn facts(rows: &[(&str, String)]) -> String {
    let mut html = String::from("<table class=\"facts\">\n");
    for (name, value) in rows {
        let _ = writeln!(html, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    html.push_str("</table>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        assert_eq!(escape("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
        let html = table(&["a<b"], &[vec!["<script>".to_string()]]);
        assert!(html.contains("a&lt;b") && html.contains("&lt;script&gt;") && !html.contains("<script"));
        assert!(!facts(&[("<x>", "<y>".to_string())]).contains("<x>"));
    }
}
