//! A server that goes away while an interface is open.

use azureal::desk::{News, Request};
use azureal::{Options, Workspace};
use azureal_testkit::servers::{CuttingProxy, PostgresServer};

use super::{Listener, World};

#[test]
fn a_server_that_does_not_answer_is_told_and_that_it_answers_again() {
    let Some(server) = PostgresServer::shared() else { return };
    let (world, proxy) = (World::new(""), CuttingProxy::start(server.port()));
    let store = format!("{}?project=away&sslmode=disable", server.url_at(proxy.port()));
    let options = Options { store: Some(store.into()), ..Options::default() };
    let workspace = Workspace::open(&world.path("project"), &world.environment, &options).unwrap();
    let desk = Listener::of(workspace);
    desk.desk.perform(Request::List { all_worktrees: false, limit: 10 });
    desk.until("list", |news| matches!(news, News::Sessions(_)).then_some(()));
    let told = |part: &str| {
        desk.until(part, |news| match news {
            News::Notice(text) => text.contains(part).then_some(()),
            // Nothing that the user asked for has failed.
            News::Failed { error, .. } => panic!("{}", error.message()),
            _ => None,
        });
    };
    proxy.set_silent(true);
    told("the server of the store does not answer: azureal keeps trying");
    proxy.set_silent(false);
    told("the server of the store answers again");
}
