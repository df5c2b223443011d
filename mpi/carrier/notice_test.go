package carrier_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// listener records the tags of messages and the results of operations.
type listener struct {
	*carrier.Carrier
	tags  []int32
	ended []error
}

func (l *listener) Arrived(_ int, h *wire.Header, _ []byte) error {
	l.tags = append(l.tags, h.Tag)
	return nil
}
func (l *listener) Finished(_ any, _ carrier.Op, err error) { l.ended = append(l.ended, err) }
func (*listener) Lost(int, error)                           {}
func (*listener) EachAwaitedPeer(func(int))                 {}

// waitUntil calls Progress until done returns true.
func (l *listener) waitUntil(what string, done func() bool) error {
	for began := l.Now(); !done(); {
		if !l.Progress() {
			l.Wait(10 * time.Microsecond)
		}
		if l.Now()-began > time.Minute {
			return fmt.Errorf("timeout waiting for %s: received tags %v, results %v", what, l.tags, l.ended)
		}
	}
	return nil
}

// pair runs a program on two ranks over iWARP, where the notice of a write must follow on
// its connection. Rank 0 gets the memory that rank 1 has registered.
func pair(t *testing.T, cfg func(rank int) carrier.Config, n int, program func(e *transport.Env, l *listener, mine wire.Region, there wire.Memory) error) {
	t.Helper()
	out, err := mpihost.InWorld(mpihost.Fabric{Ranks: 2, Provider: "softiwarp", Limit: time.Hour}, func(e *transport.Env) (err error) {
		l := &listener{}
		if l.Carrier, err = carrier.Open(e, cfg(e.Rank), l); err != nil {
			return err
		}
		mine := must.Get(l.Register(make([]byte, n)))(t)
		there := must.Get(sendMemory(e, mine))(t)
		err = program(e, l, mine, there)
		l.Release(mine)
		return errors.Join(err, l.Close())
	})
	if err != nil {
		t.Error(err)
		for i, r := range out.Ranks {
			t.Logf("rank %d: %v", i, r.Err)
		}
	}
}

func sendMemory(e *transport.Env, mine wire.Region) (there wire.Memory, err error) {
	if e.Rank == 1 {
		text, err := json.Marshal(mine.Memory())
		if err != nil {
			return there, err
		}
		return there, e.Control.Send(0, text)
	}
	text, err := e.Control.Recv(1, time.Minute)
	if err != nil {
		return there, err
	}
	return there, json.Unmarshal(text, &there)
}

// The notice of a write follows earlier messages too, although they wait for credits longer
// than the write takes.
func TestWriteNoticeFollowsEarlierMessages(t *testing.T) {
	const messages = 40
	cfg := func(int) carrier.Config { return carrier.Config{Design: carrier.SendRecv, Receives: 4} }
	pair(t, cfg, 64, func(e *transport.Env, l *listener, mine wire.Region, there wire.Memory) error {
		if e.Rank == 1 {
			must.Do(t, l.waitUntil("messages", func() bool { return len(l.tags) == messages+1 }))
			if !slices.IsSorted(l.tags) {
				return fmt.Errorf("messages arrived in order %v", l.tags)
			}
			return e.Control.Barrier(time.Minute)
		}
		for tag := range int32(messages) {
			l.Send(1, &wire.Header{Kind: wire.Eager, Tag: tag}, nil, nil)
		}
		l.Write(1, wire.Transfer{Local: mine, N: 64, Remote: there, Then: &wire.Header{Kind: wire.Eager, Tag: messages}}, "the write")
		must.Do(t, l.waitUntil("the write", func() bool { return len(l.ended) == 1 }))
		return errors.Join(l.ended[0], l.waitUntil("delivery", l.AllDelivered), e.Control.Barrier(time.Minute))
	})
}

// A peer that receives only RDMA writes considers the connection idle. It receives the
// notice of a write before the connection closes.
func TestWriteNoticeArrivesBeforeIdleDisconnect(t *testing.T) {
	const size, messages = 8 << 20, 40
	cfg := func(rank int) (c carrier.Config) {
		c.Design, c.Receives = carrier.SendRecv, 4
		if rank == 1 {
			c.IdleTimeout = 20 * time.Microsecond
		}
		return c
	}
	pair(t, cfg, size, func(e *transport.Env, l *listener, mine wire.Region, there wire.Memory) error {
		if e.Rank == 1 {
			must.Do(t, l.waitUntil("messages", func() bool { return len(l.tags) == messages+1 }))
			err := l.waitUntil("the end of the connection", func() bool { return l.Stats().ConnectionsClosed > 0 })
			return errors.Join(err, e.Control.Barrier(time.Minute))
		}
		for tag := range int32(messages) { // more than there are credits for
			l.Send(1, &wire.Header{Kind: wire.Eager, Tag: tag}, nil, nil)
		}
		l.Write(1, wire.Transfer{Local: mine, N: size, Remote: there, Then: &wire.Header{Kind: wire.Eager, Tag: messages}}, "the write")
		must.Do(t, l.waitUntil("the end of the write", func() bool { return len(l.ended) > 0 }))
		return errors.Join(l.ended[0], l.waitUntil("delivery", l.AllDelivered), e.Control.Barrier(time.Minute))
	})
}

// A write whose notice has no credit fails when its peer is lost.
func TestWriteWithoutCreditForNoticeFailsWithPeer(t *testing.T) {
	cfg := func(int) carrier.Config { return carrier.Config{Design: carrier.SendRecv, Receives: 4} }
	pair(t, cfg, 64, func(e *transport.Env, l *listener, mine wire.Region, there wire.Memory) error {
		if e.Rank == 1 {
			err := l.waitUntil("a message", func() bool { return len(l.tags) > 0 })
			e.Proc.Sleep(10 * time.Millisecond) // without Progress
			return err
		}
		for tag := range int32(40) {
			l.Send(1, &wire.Header{Kind: wire.Eager, Tag: tag}, nil, nil)
		}
		l.Write(1, wire.Transfer{Local: mine, N: 64, Remote: there, Then: &wire.Header{Kind: wire.Eager, Tag: 99}}, "the write")
		must.Do(t, l.waitUntil("the end of the write", func() bool { return len(l.ended) > 0 }))
		if l.ended[0] == nil {
			return errors.New("the write succeeded, and its notice was not sent")
		}
		return nil
	})
}

func (l *listener) FlushNeeded() {}
