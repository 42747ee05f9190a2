//! Send orders through a quorum queue, or take them from it: `orders producer` or `orders worker`.

use futures_lite::StreamExt;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Event, Result, options::*};
use std::{env, process::ExitCode, time::Duration};
use tokio::signal::unix::{SignalKind, signal};
use tokio::{sync::watch, time};

type Stopping = watch::Receiver<bool>;

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_string())
}

async fn declared(connection: &Connection, queue: &str) -> Result<Channel> {
    let channel = connection.create_channel().await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await?;
    Ok(channel)
}

async fn publish(channel: &Channel, queue: &str, id: &str, body: &[u8]) -> Result<Confirmation> {
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_message_id(id.into());
    channel.basic_publish("".into(), queue.into(), BasicPublishOptions::default(), body, properties).await?.await
}

async fn produce(connection: &Connection, queue: &str, stopping: Stopping) -> Result<String> {
    let channel = declared(connection, queue).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let rate_per_s: f64 = setting("RATE_PER_S", "50").parse().expect("RATE_PER_S is a number");
    let mut ticks = time::interval(Duration::from_secs_f64(1.0 / rate_per_s));
    let mut confirmed = 0;
    while !*stopping.borrow() {
        ticks.tick().await;
        let id = uuid::Uuid::new_v4().to_string();
        let body = serde_json::json!({"order": id, "number": confirmed + 1}).to_string();
        loop {
            match publish(&channel, queue, &id, body.as_bytes()).await {
                Ok(Confirmation::Ack(_)) => break,
                Ok(_) => time::sleep(Duration::from_secs(1)).await, // refused: send it again
                Err(error) => channel.wait_for_recovery(error).await?, // not confirmed: send it again
            }
        }
        confirmed += 1;
    }
    Ok(format!("{confirmed} confirmed"))
}

async fn work(connection: &Connection, queue: &str, mut stopping: Stopping) -> Result<String> {
    let channel = declared(connection, queue).await?;
    channel.basic_qos(20, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut orders = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
    let mut done = 0;
    while let Some(delivery) = tokio::select! { next = orders.next() => next, _ = stopping.changed() => None } {
        let result = match delivery {
            Ok(delivery) => {
                let order: serde_json::Value = serde_json::from_slice(&delivery.data).expect("an order is JSON");
                assert!(order["order"].is_string());
                time::sleep(Duration::from_millis(5)).await;
                delivery.ack(BasicAckOptions::default()).await.map(|_| done += 1)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            channel.wait_for_recovery(error).await?;
        }
    }
    Ok(format!("{done} done"))
}

async fn run(role: &str, stopping: Stopping) -> Result<String> {
    let url = setting("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F");
    let connection = Connection::connect(&url, ConnectionProperties::default().enable_auto_recover()).await?;
    println!("connected");
    let mut events = connection.events_listener();
    let reporting = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Event::Connected => println!("connected"),
                Event::Error(error) => println!("connection lost: {error}"),
                _ => {}
            }
        }
    });
    let queue = setting("QUEUE", "orders");
    let result = match role {
        "producer" => produce(&connection, &queue, stopping).await?,
        "worker" => work(&connection, &queue, stopping).await?,
        _ => panic!("usage: orders producer|worker"),
    };
    reporting.abort();
    connection.close(200, "the program ends".into()).await?;
    Ok(result)
}

#[tokio::main]
async fn main() -> ExitCode {
    let role = env::args().nth(1).unwrap_or_default();
    let (stop, stopping) = watch::channel(false);
    let asked_to_end = async {
        signal(SignalKind::terminate()).expect("a handler of SIGTERM").recv().await;
        let _ = stop.send(true);
        time::sleep(Duration::from_secs(5)).await;
    };
    let ended = tokio::select! {
        ended = run(&role, stopping) => ended,
        _ = asked_to_end => Ok("the broker did not answer".to_string()),
    };
    println!("ended: {}", ended.as_ref().map_or_else(|error| format!("gave up: {error}"), String::clone));
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
