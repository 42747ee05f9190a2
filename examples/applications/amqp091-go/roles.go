package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
)

type order struct {
	Order  string `json:"order"`
	Number int    `json:"number"`
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

var queue = setting("QUEUE", "orders")

// report prints each change of the connection's state, and cancels when the client has given up its recovery.
func report(changes <-chan *amqp.StateChanged, giveUp context.CancelCauseFunc) {
	for change := range changes {
		switch change.To {
		case amqp.StateReconnecting:
			fmt.Println("connection lost")
		case amqp.StateOpen:
			fmt.Println("connected")
		case amqp.StateClosed:
			if change.Err != nil {
				giveUp(fmt.Errorf("gave up: %w", change.Err))
			}
		}
	}
}

// publish returns nil when the broker has confirmed the order.
func publish(ch *amqp.Channel, made order) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	body, err := json.Marshal(made)
	if err != nil {
		return err
	}
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{
		ContentType:  "application/json",
		DeliveryMode: amqp.Persistent,
		MessageId:    made.Order,
		Body:         body,
	})
	if err != nil {
		return err
	}
	if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
		return fmt.Errorf("not confirmed: %v", err)
	}
	return nil
}

func produce(ctx context.Context, ch *amqp.Channel) (string, error) {
	if err := ch.Confirm(false); err != nil {
		return "", err
	}
	ratePerS, err := strconv.ParseFloat(setting("RATE_PER_S", "50"), 64)
	if err != nil {
		return "", err
	}
	confirmed := 0
	for ticks := time.NewTicker(time.Duration(float64(time.Second) / ratePerS)); ctx.Err() == nil; <-ticks.C {
		made := order{uuid.NewString(), confirmed + 1}
		for publish(ch, made) != nil {
			if ctx.Err() != nil {
				return fmt.Sprintf("%d confirmed", confirmed), nil
			}
			time.Sleep(time.Second) // the client reconnects meanwhile; then the same order again
		}
		confirmed++
	}
	return fmt.Sprintf("%d confirmed", confirmed), nil
}

func work(ctx context.Context, ch *amqp.Channel) (string, error) {
	if err := ch.Qos(20, 0, false); err != nil {
		return "", err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return "", err
	}
	for done := 0; ; {
		select {
		case <-ctx.Done():
			return fmt.Sprintf("%d done", done), nil
		case delivery, open := <-deliveries:
			if !open {
				return "", fmt.Errorf("gave up: the deliveries ended")
			}
			var taken order
			if err := json.Unmarshal(delivery.Body, &taken); err != nil || taken.Order == "" {
				return "", fmt.Errorf("no order: %s", delivery.Body)
			}
			time.Sleep(5 * time.Millisecond)
			if delivery.Ack(false) == nil {
				done++
			}
		}
	}
}
