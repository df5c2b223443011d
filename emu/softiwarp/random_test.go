package softiwarp

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

// The randomised pair test: two devices run random requests on random connections over streams that
// the network splits, stalls, corrupts and resets. A model checks delivery exactly once and in
// order, all bytes, memory, atomics, completions, and that all calls return. A seed decides all
// choices.

var (
	randomSeeds = flag.Int("seeds", 200, "number of seeds of TestRandomPair")
	randomSeed  = flag.Int64("seed", -1, "the only seed of TestRandomPair; -v prints its choices")
)

func TestRandomPair(t *testing.T) {
	if *randomSeed >= 0 {
		c := newRandomCase(uint64(*randomSeed))
		t.Log(c)
		must.Get(c.run())(t)
		return
	}
	seeds := *randomSeeds
	if testing.Short() {
		seeds = min(seeds, 40)
	}
	totals := make([]randomTotals, seeds)
	testutil.Shards(t, seeds, func(t *testing.T, seed int) {
		got, err := newRandomCase(uint64(seed)).run()
		if err != nil {
			t.Errorf("%v\nTo repeat:\n\n    go test ./emu/softiwarp -run TestRandomPair -seed %d -v\n", err, seed)
		}
		totals[seed] = got
	})
	var sum randomTotals
	for i := range totals {
		sum.add(&totals[i])
	}
	t.Logf("%+v", sum)
	if seeds >= 200 && !t.Failed() {
		sum.checkVariety(t)
	}
}

// randomTotals are the totals of some cases.
type randomTotals struct {
	cases, lanes, broken, notConnected int
	requests, messages                 int
	events                             uint64
	took                               time.Duration
	badCRCs, lost, markers             uint64
	terminates, fallbacks              uint64
}

func (t *randomTotals) add(o *randomTotals) {
	t.cases += o.cases
	t.lanes += o.lanes
	t.broken += o.broken
	t.notConnected += o.notConnected
	t.requests += o.requests
	t.messages += o.messages
	t.events += o.events
	t.took = max(t.took, o.took)
	t.badCRCs += o.badCRCs
	t.lost += o.lost
	t.markers += o.markers
	t.terminates += o.terminates
	t.fallbacks += o.fallbacks
}

// checkVariety checks that the cases cover all events.
func (t *randomTotals) checkVariety(tt *testing.T) {
	for name, n := range map[string]int{
		"broken lanes": t.broken, "lanes that were not connected": t.notConnected, "bad CRCs": int(t.badCRCs),
		"lost streams": int(t.lost), "markers": int(t.markers), "Terminates": int(t.terminates), "fallbacks": int(t.fallbacks),
	} {
		if n < 5 {
			tt.Errorf("%d %s in %d cases: too few", n, name, t.cases)
		}
	}
	if t.broken*3 > t.lanes {
		tt.Errorf("%d of %d lanes broke: too many, since the model checks less of them", t.broken, t.lanes)
	}
}

// run runs a case and returns its totals.
func (c *randomCase) run() (got randomTotals, err error) {
	w, devices, err := c.world()
	if err != nil {
		return got, fmt.Errorf("world of seed %d: %w", c.seed, err)
	}
	defer w.Close()
	var sides []*randomSide
	at := netip.AddrPortFrom(c.addrs[1], 4711)
	for i, l := range c.lanes {
		var pair [2]*randomSide
		for side := range pair {
			if pair[side], err = newRandomSide(devices[side], l, side); err != nil {
				return got, err
			}
			if c.stream.CorruptPPM > 0 {
				pair[side].maxPolls = 1000
			}
		}
		pair[0].peer, pair[1].peer = pair[1], pair[0]
		sides = append(sides, pair[:]...)
		w.Go(fmt.Sprintf("lane %d", i), func(p *sim.Proc) error {
			p.Sleep(10 * time.Microsecond)
			conn, err := devices[0].cm.Connect(pair[0].e.QP, at, verbs.ConnParam{
				ResponderResources: 3, InitiatorDepth: 3, PrivateData: laneName(i),
			}, 5*time.Second)
			if err != nil {
				return c.notConnected(pair[0], err)
			}
			return c.exchange(p, pair[0], conn)
		})
	}
	w.Go("accept", func(*sim.Proc) error { return c.accept(w, devices[1], at, sides) })
	if err := w.RunPrograms(); err != nil {
		return got, fmt.Errorf("seed %d at %v: %w", c.seed, w.Now(), err)
	}
	if err := w.Run(); err != nil {
		return got, fmt.Errorf("seed %d, after everything was closed: %w", c.seed, err)
	}
	for _, s := range sides {
		if err := s.checkMemory(); err != nil {
			return got, fmt.Errorf("seed %d: %w", c.seed, err)
		}
		got.requests += s.done
		got.messages += s.arrived
		if s.side == 0 {
			got.lanes++
			if s.conn == nil {
				got.notConnected++
			} else if s.failed || s.peer.failed {
				got.broken++
			}
		}
	}
	got.cases, got.events, got.took = 1, w.Events(), time.Duration(w.Now())
	for _, d := range devices {
		if n := openStreams(d); n != 0 {
			return got, fmt.Errorf("seed %d: %s has %d open streams", c.seed, d.Name(), n)
		}
		got.badCRCs += counter(d, "mpa_bad_crcs")
		got.lost += counter(d, "mpa_lost")
		got.markers += counter(d, "mpa_rcvd_markers")
		got.terminates += counter(d, "sent_terminates")
		got.fallbacks += counter(d, "cm_fallbacks")
	}
	return got, nil
}

// accept accepts the lanes' connections until all are there, or none arrives for a while.
func (c *randomCase) accept(w *sim.World, d *Device, at netip.AddrPort, sides []*randomSide) error {
	l, err := d.cm.Listen(at, verbs.PortSpaceTCP, 0)
	if err != nil {
		return err
	}
	lanes := make([][]byte, len(c.lanes))
	for i := range lanes {
		lanes[i] = laneName(i)
	}
	for range 2 * len(c.lanes) { // some retry
		req, err := l.GetRequest(10 * time.Second)
		if errors.Is(err, verbs.ErrTimeout) {
			break
		}
		if err != nil {
			return err
		}
		lane := slices.IndexFunc(lanes, func(name []byte) bool { return bytes.Equal(name, req.Param().PrivateData) })
		if lane < 0 { // a bit was inverted
			if !c.breaksStreams() {
				return fmt.Errorf("private data %x", req.Param().PrivateData)
			}
			_ = req.Reject(nil) // fails if the requester has closed
			continue
		}
		s := sides[2*lane+1]
		w.Go(fmt.Sprintf("lane %d, accepted", lane), func(p *sim.Proc) error {
			conn, err := req.Accept(s.e.QP, verbs.ConnParam{ResponderResources: 3, InitiatorDepth: 3}, 5*time.Second)
			if err != nil {
				return c.notConnected(s, err)
			}
			return c.exchange(p, s, conn)
		})
	}
	return l.Close()
}

// laneName is the private data that identifies a lane. One inverted bit does not yield another
// name.
func laneName(i int) []byte { return []byte{byte(i), ^byte(i), byte(i)} }

// notConnected handles a failed connect, which only link flaps or a network that breaks streams may
// cause.
func (c *randomCase) notConnected(s *randomSide, err error) error {
	if !c.breaksStreams() && len(c.flaps) == 0 {
		return err
	}
	s.failed = true
	return nil
}

// exchange runs a side on its connection, and disconnects.
func (c *randomCase) exchange(p *sim.Proc, s *randomSide, conn verbs.Conn) error {
	s.conn = conn
	if err := s.run(p); err != nil {
		return err
	}
	if s.failed && !c.breaksStreams() && s.done < len(s.lane.plans[s.side]) {
		return fmt.Errorf("side %d failed after %d requests and %d messages, although the stream did not break", s.side, s.done, s.arrived)
	}
	// The closer waits until the other side has completed all requests and messages.
	for s.side == s.lane.closer && !s.failed && !s.peer.finished() {
		p.Sleep(100 * time.Microsecond)
	}
	if s.side == s.lane.closer {
		if err := conn.Disconnect(); err != nil {
			return err
		}
	}
	if err := conn.WaitDisconnect(20 * time.Second); err != nil {
		return err
	}
	a, err := s.e.QP.Query()
	if err != nil || a.State != verbs.QPStateErr {
		return fmt.Errorf("side %d ended in %v, %w", s.side, a.State, err)
	}
	return s.close()
}

func (s *randomSide) finished() bool {
	return s.failed || s.done == len(s.lane.plans[s.side]) && s.arrived == len(s.expected)
}
