//! The wiring: which stages there are, which thread polls them, and how they start and stop.

mod appliance;
mod capture;
mod catchup;
mod catchup_client;
mod catchup_source;
mod idle;
mod nic;
mod plan;
mod recovery;
mod shadow;
mod stage;
mod stages;

pub use appliance::{Appliance, Choices, Report, StartError};
pub use catchup::{CatchupCounters, CatchupServer, CatchupServerConfig, ServedRing};
pub use catchup_client::{
    CatchupClient, CatchupClientConfig, CatchupError, CatchupItem, CatchupStep, install_snapshot,
};
pub use idle::{IdleStrategy, Idler};
pub use plan::{CorePlan, CoreSlot, PlanError, StageName};
pub use stage::{Lifecycle, Stage, StageReport};
