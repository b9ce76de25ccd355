//! What `ticktape load` sends to each service.

use counter::Command as Addition;
use feed::Command as Transfer;
use kv::Command as Pair;
use orderbook::Command as Order;
use orderbook::flow::Generator;
use ticktape_tools::LoadClient;

/// Keys of the store, and accounts of the bank.
const KEYS: u64 = 1000;
const ACCOUNTS: u64 = 8;

/// Order flow around a price that walks at random; each client's orders have names of their own.
pub fn orders(client: LoadClient) -> Box<dyn Iterator<Item = Order> + Send> {
    let own = move |id: u64| id.wrapping_mul(client.of).wrapping_add(client.number);
    let flow = Generator::new(client.seed.wrapping_add(client.number));
    Box::new(flow.map(move |order| match order {
        Order::New { seq, id, side, price, qty, time_in_force } => {
            Order::New { seq, id: own(id), side, price, qty, time_in_force }
        }
        Order::Cancel { seq, id } => Order::Cancel { seq, id: own(id) },
        Order::Modify { seq, id, price, qty } => Order::Modify { seq, id: own(id), price, qty },
    }))
}

/// Ones.
pub fn additions(_: LoadClient) -> Box<dyn Iterator<Item = Addition> + Send> {
    Box::new(std::iter::repeat_with(|| Addition::Add(1)))
}

/// Two reads a write, of keys by turns.
pub fn pairs(client: LoadClient) -> Box<dyn Iterator<Item = Pair> + Send> {
    let key = move |n: u64| format!("key-{}", (n.wrapping_add(client.number) * 7919) % KEYS);
    Box::new((0_u64..).map(move |n| match n % 3 {
        0 => Pair::Put { key: key(n), value: format!("value-{n}") },
        _ => Pair::Get { key: key(n) },
    }))
}

/// A unit of money round all accounts.
pub fn transfers(client: LoadClient) -> Box<dyn Iterator<Item = Transfer> + Send> {
    let account = |n: u64| (n % ACCOUNTS) as u8;
    Box::new((client.number..).map(move |n| Transfer::Transfer { from: account(n), to: account(n + 1), amount: 1 }))
}
