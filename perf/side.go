package perf

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Role says which of the two sides a program plays.
type Role uint8

// The client starts, and its figures count.
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

// Exchange is how the two sides talk apart from what they measure.
type Exchange interface {
	// Swap gives mine to the other side and returns what that gives. It returns
	// when both have called it, so it is a barrier too.
	Swap(ctx context.Context, mine []byte) ([]byte, error)
}

// Side is one of two ends of a measurement.
type Side struct {
	Role     Role
	Device   verbs.Context
	Service  Service
	Exchange Exchange
	// Addr is the device's own address. Only the server of a Streamed service
	// needs it.
	Addr netip.Addr
	// Port and GIDIndex say where on the device; port 0 means 1.
	Port     uint8
	GIDIndex uint8
}

// patience is how long a program waits for anything that should come at once.
const patience = 30 * time.Second

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

// meet waits until the other side has come as far.
func (s *Side) meet(ctx context.Context) error {
	_, err := swap(ctx, s, struct{}{})
	return err
}

// tally is what one side has counted.
type tally struct {
	Messages uint64
}
