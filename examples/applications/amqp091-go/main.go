// Send orders through a quorum queue, or take them from it: `orders producer` or `orders worker`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	amqp "github.com/rabbitmq/amqp091-go"
)

// run connects with the client's own recovery, and serves the role until SIGTERM.
func run(role string) (string, error) {
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, giveUp := context.WithCancelCause(terminated)
	conn, err := amqp.DialConfig(
		setting("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F"),
		amqp.Config{Recovery: &amqp.Recovery{}},
	)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	fmt.Println("connected")
	changes := make(chan *amqp.StateChanged, 1)
	conn.NotifyStateChange(changes)
	go report(changes, giveUp)
	ch, err := conn.Channel()
	if err != nil {
		return "", err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return "", err
	}
	roles := map[string]func(context.Context, *amqp.Channel) (string, error){"producer": produce, "worker": work}
	how, err := roles[role](ctx, ch)
	if terminated.Err() == nil && err == nil {
		err = context.Cause(ctx)
	}
	return how, err
}

func main() {
	how, err := run(os.Args[1])
	if err != nil {
		fmt.Println("ended:", err)
		os.Exit(1)
	}
	fmt.Println("ended:", how)
}
