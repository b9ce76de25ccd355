//! The wiring: which stages there are, which thread polls them, and how they start and stop.

mod appliance;
mod capture;
mod idle;
mod nic;
mod plan;
mod recovery;
mod shadow;
mod stage;
mod stages;

pub use appliance::{Appliance, Choices, Report, StartError};
pub use idle::{IdleStrategy, Idler};
pub use plan::{CorePlan, CoreSlot, PlanError, StageName};
pub use stage::{Lifecycle, Stage, StageReport};
