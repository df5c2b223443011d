package perf

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Role is the side of a program.
type Role uint8

// The client starts, and returns the result.
const (
	Client Role = iota
	Server
)

func (r Role) String() string {
	if r == Client {
		return "client"
	}
	return "server"
}

// Exchange is the out-of-band channel between the sides.
type Exchange interface {
	// Swap sends mine to the other side and returns its data. It returns when both
	// sides have called it, and is also a barrier.
	Swap(ctx context.Context, mine []byte) ([]byte, error)
}

// Side is one side of a measurement.
type Side struct {
	Role     Role
	Device   verbs.Context
	Service  Service
	Exchange Exchange
	// Addr is the address of the device; needed by the server of ServiceIWARP.
	Addr netip.Addr
	// Port and GIDIndex select the GID; port 0 means 1.
	Port     uint8
	GIDIndex uint8
}

// waitTimeout bounds all waits of a program.
const waitTimeout = 30 * time.Second

// swap exchanges values as JSON.
func swap[T any](ctx context.Context, s *Side, mine T) (theirs T, err error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return theirs, err
	}
	if b, err = s.Exchange.Swap(ctx, b); err != nil {
		return theirs, fmt.Errorf("%v: exchange with the other side: %w", s.Role, err)
	}
	if err := json.Unmarshal(b, &theirs); err != nil {
		return theirs, fmt.Errorf("%v: the other side said %q: %w", s.Role, b, err)
	}
	return theirs, nil
}

// barrier waits until the other side calls it, too.
func (s *Side) barrier(ctx context.Context) error {
	_, err := swap(ctx, s, struct{}{})
	return err
}

type messageCount struct {
	Messages uint64
}
