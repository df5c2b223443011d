package softroce

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// The randomised pair test: two devices on a random network execute random work
// requests on random queue pairs. A model that knows verbs only (package
// scenarios/random) checks exactly-once delivery, order, contents, memory, completions,
// the order of atomics, and Close. All choices depend on the seed.

var (
	randomSeeds = flag.Int("seeds", 500, "number of seeds of TestRandomPair")
	randomSeed  = flag.Int64("seed", -1, "the only seed of TestRandomPair; -v logs its packets and calls")
)

func TestRandomPair(t *testing.T) {
	if *randomSeed >= 0 {
		c := newRandomCase(uint64(*randomSeed))
		c.verbose = testing.Verbose()
		if c.verbose {
			t.Log(c)
		}
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
			t.Errorf("%v\nTo repeat it:\n\n    go test ./emu/softroce -run TestRandomPair -seed %d -v\n", err, seed)
		}
		totals[seed] = got
	})
	var sum randomTotals
	for i := range totals {
		sum.add(totals[i])
	}
	t.Log(sum)
	if seeds >= 500 && !t.Failed() {
		sum.checkCoverage(t)
	}
}

// run runs a case and returns its totals.
func (c *randomCase) run() (randomTotals, error) {
	w, devices, err := c.world()
	if err != nil {
		return randomTotals{}, fmt.Errorf("world of seed %d: %w", c.seed, err)
	}
	defer w.Close()
	var pipes [2]traffic.Exchange
	pipes[0], pipes[1] = sim.Pipe(w)
	var ends [2]*random.End
	var results [2]*random.Result
	for side := range random.Side(2) {
		device := defects.WrapDevice(devices[side], c.verbs[side], func() time.Duration { return time.Duration(w.Now()) })
		env := random.Env{Device: device, Peer: pipes[side], Trace: c.trace(w)}
		if ends[side], err = random.NewEnd(env, &c.work, side); err != nil {
			return randomTotals{}, err
		}
		w.Go("side "+side.String(), func(p *sim.Proc) (err error) {
			results[side], err = ends[side].Run(p)
			return err
		})
	}
	if err := w.RunPrograms(); err != nil {
		for _, e := range ends {
			err = fmt.Errorf("%w\n%s", err, e.Status())
		}
		return randomTotals{}, fmt.Errorf("seed %d at %v: %w", c.seed, w.Now(), err)
	}
	// Without queue pairs no timer or packet remains: the world ends.
	if err := w.Run(); err != nil {
		return randomTotals{}, fmt.Errorf("seed %d, after Close: %w", c.seed, err)
	}
	for _, d := range devices {
		if err := unexpectedEvents(d); err != nil {
			return randomTotals{}, fmt.Errorf("seed %d: %w", c.seed, err)
		}
	}
	got := totalsOf(results)
	got.took = time.Duration(w.Now())
	if dropped := c.dropped(&got); uint64(got.lost) > dropped {
		return got, fmt.Errorf("seed %d: %d messages of unreliable connections were lost, but only %d packets", c.seed, got.lost, dropped)
	}
	return got, nil
}

// unexpectedEvents returns an error for asynchronous events that faults of the network
// must not cause: errors of queue pairs, queues or the device.
func unexpectedEvents(d *Device) error {
	for {
		e, err := d.WaitAsync(0)
		if err != nil {
			if errors.Is(err, verbs.ErrTimeout) {
				return nil
			}
			return err
		}
		switch e.Type {
		case verbs.EventCommEst, verbs.EventPortErr, verbs.EventPortActive, verbs.EventQPLastWQEReached:
		default:
			return fmt.Errorf("device %s reported %v", d.cfg.Name, e.Type)
		}
	}
}

// dropped counts the packets that can have lost a message: those that the network
// lost or corrupted, and those without a receive. There is no bound if packets are
// reordered or duplicated, since one can then lose several messages, or if a link
// goes down, since a port without link sends nothing.
func (c *randomCase) dropped(got *randomTotals) uint64 {
	if c.work.Network.Duplicates || c.work.Network.Reorders || len(c.flaps) > 0 {
		return 1 << 63
	}
	n := got.counters["drop_no_receive"]
	for _, p := range c.net.Ports() {
		n += p.Stats().Drops.Total()
		for _, pipe := range pipes(p) {
			k := pipe.Counters()
			n += k.Lost + k.LostInBurst + k.Overflowed + k.Corrupted + k.Truncated
		}
	}
	return n
}

func pipes(p *sim.Port) (all []*impair.Pipe) {
	up, down := p.Impairments()
	for _, x := range []*impair.Pipe{up, down} {
		if x != nil {
			all = append(all, x)
		}
	}
	return all
}

// randomTotals are the totals of many random cases.
type randomTotals struct {
	cases, conns, reliable, gaveUp int
	requests                       int
	bytes                          int64
	delivered, lost                int // of unreliable messages
	counters                       map[string]uint64
	took                           time.Duration // virtual; of the longest
}

func totalsOf(results [2]*random.Result) randomTotals {
	t := randomTotals{cases: 1, counters: map[string]uint64{}}
	for _, r := range results {
		for _, l := range r.Conns {
			t.conns++
			t.requests += l.Sent.Posted
			t.bytes += l.Received.Bytes
			if l.Service.Reliable() {
				t.reliable++
				if l.Sent.Failed != verbs.WCSuccess {
					t.gaveUp++
				}
			} else {
				t.delivered += l.Received.Delivered
				t.lost += l.Received.Lost
			}
		}
		for _, c := range r.Counters {
			t.counters[c.Name] += c.Value
		}
	}
	return t
}

func (t *randomTotals) add(o randomTotals) {
	t.cases += o.cases
	t.conns += o.conns
	t.reliable += o.reliable
	t.gaveUp += o.gaveUp
	t.requests += o.requests
	t.bytes += o.bytes
	t.delivered += o.delivered
	t.lost += o.lost
	t.took = max(t.took, o.took)
	if t.counters == nil {
		t.counters = map[string]uint64{}
	}
	for name, v := range o.counters {
		t.counters[name] += v
	}
}

func (t randomTotals) String() string {
	s := fmt.Sprintf("%d cases, %d requests and %d bytes checked; %d of %d reliable connections gave up; %d of %d unreliable messages lost; longest %v",
		t.cases, t.requests, t.bytes, t.gaveUp, t.reliable, t.lost, t.lost+t.delivered, t.took)
	for _, name := range requiredCounters {
		s += fmt.Sprintf("; %s %d", name, t.counters[name])
	}
	return s
}

// requiredCounters are counters of events that must occur in random cases, or they test
// too little.
var requiredCounters = []string{
	"retransmitted_pkts", "ack_timeout", "duplicate_request", "out_of_seq_request", "sent_seq_nak", "sent_rnr_nak", "implied_nak",
	"stale_response", "ecn_marked", "cnps_handled", "drop_icrc", "drop_short", "drop_no_receive", "drop_sequence", "retry_exceeded",
}

func (t *randomTotals) checkCoverage(tt *testing.T) {
	for _, name := range requiredCounters {
		if t.counters[name] < 10 {
			tt.Errorf("%s is %d in %d cases, want at least 10", name, t.counters[name], t.cases)
		}
	}
	// A connection is checked only until it gives up.
	if t.gaveUp*10 > t.reliable {
		tt.Errorf("%d of %d reliable connections gave up: too much loss, or wasted retries", t.gaveUp, t.reliable)
	}
}
