package carrier_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// listener notes the tags of words, and how operations end.
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

// until progresses until a condition holds, with pauses.
func (l *listener) until(what string, done func() bool) error {
	for began := l.Now(); !done(); {
		if !l.Progress() {
			l.Wait(10 * time.Microsecond)
		}
		if l.Now()-began > time.Minute {
			return fmt.Errorf("no end of waiting for %s: words %v, ends %v", what, l.tags, l.ended)
		}
	}
	return nil
}

// pair runs a program on two ranks of iWARP, where a word about data must go the same way
// as the data. Rank 1 has registered the memory that rank 0 is told of.
func pair(t *testing.T, cfg func(rank int) carrier.Config, n int, program func(e *env.Env, l *listener, mine *carrier.Region, there wire.Memory) error) {
	t.Helper()
	out, err := mpihost.InWorld(mpihost.Fabric{Ranks: 2, Provider: "softiwarp", Limit: time.Hour}, func(e *env.Env) (err error) {
		l := &listener{}
		if l.Carrier, err = carrier.Open(e, cfg(e.Rank), l); err != nil {
			return err
		}
		mine, err := l.Register(make([]byte, n))
		if err != nil {
			return err
		}
		there, err := tellMemory(e, mine)
		if err != nil {
			return err
		}
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

func tellMemory(e *env.Env, mine *carrier.Region) (there wire.Memory, err error) {
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

// A word behind data arrives behind all that was said before it as well, though that had
// to wait for credits longer than the data took.
func TestWordsBehindDataKeepTheirTurn(t *testing.T) {
	const words = 40
	cfg := func(int) carrier.Config { return carrier.Config{Design: carrier.SendRecv, Receives: 4} }
	pair(t, cfg, 64, func(e *env.Env, l *listener, mine *carrier.Region, there wire.Memory) error {
		if e.Rank == 1 {
			if err := l.until("words", func() bool { return len(l.tags) == words+1 }); err != nil {
				return err
			}
			if !slices.IsSorted(l.tags) {
				return fmt.Errorf("words have come as %v", l.tags)
			}
			return e.Control.Barrier(time.Minute)
		}
		for tag := range int32(words) {
			l.Send(1, &wire.Header{Kind: wire.Eager, Tag: tag}, nil, nil)
		}
		l.Write(1, mine, 64, there, &wire.Header{Kind: wire.Eager, Tag: words}, "the write")
		if err := l.until("the write", func() bool { return len(l.ended) == 1 }); err != nil {
			return err
		}
		return errors.Join(l.ended[0], l.until("quiet", l.AllDelivered), e.Control.Barrier(time.Minute))
	})
}

// A peer that takes a connection for idle, because all it gets is data, is told of the data
// before the connection is given back.
func TestWordsBehindDataComeBeforeFarewells(t *testing.T) {
	const much, words = 8 << 20, 40
	cfg := func(rank int) (c carrier.Config) {
		c.Design, c.Receives = carrier.SendRecv, 4
		if rank == 1 {
			c.IdleTimeout = 20 * time.Microsecond
		}
		return c
	}
	pair(t, cfg, much, func(e *env.Env, l *listener, mine *carrier.Region, there wire.Memory) error {
		if e.Rank == 1 {
			if err := l.until("words", func() bool { return len(l.tags) == words+1 }); err != nil {
				return err
			}
			err := l.until("the end of the connection", func() bool { return l.Stats().ConnectionsClosed > 0 })
			return errors.Join(err, e.Control.Barrier(time.Minute))
		}
		for tag := range int32(words) { // more than there are credits for when the write begins
			l.Send(1, &wire.Header{Kind: wire.Eager, Tag: tag}, nil, nil)
		}
		l.Write(1, mine, much, there, &wire.Header{Kind: wire.Eager, Tag: words}, "the write")
		if err := l.until("the end of the write", func() bool { return len(l.ended) > 0 }); err != nil {
			return err
		}
		return errors.Join(l.ended[0], l.until("quiet", l.AllDelivered), e.Control.Barrier(time.Minute))
	})
}

// Data whose word has no credit to leave with ends with its peer.
func TestWordsBehindDataEndWithTheirPeer(t *testing.T) {
	cfg := func(int) carrier.Config { return carrier.Config{Design: carrier.SendRecv, Receives: 4} }
	pair(t, cfg, 64, func(e *env.Env, l *listener, mine *carrier.Region, there wire.Memory) error {
		if e.Rank == 1 {
			err := l.until("a word", func() bool { return len(l.tags) > 0 })
			e.Proc.Sleep(10 * time.Millisecond) // without a look at what comes
			return err
		}
		for tag := range int32(40) {
			l.Send(1, &wire.Header{Kind: wire.Eager, Tag: tag}, nil, nil)
		}
		l.Write(1, mine, 64, there, &wire.Header{Kind: wire.Eager, Tag: 99}, "the write")
		if err := l.until("the end of the write", func() bool { return len(l.ended) > 0 }); err != nil {
			return err
		}
		if l.ended[0] == nil {
			return errors.New("the write has ended well, and nobody was told of it")
		}
		return nil
	})
}

func (l *listener) FlushNeeded() {}
