package softroce

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects/verbcalls"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// The randomised pair test: two devices on a random network exchange random
// work on random queue pairs, and a model that knows verbs only (package
// traffic) checks what comes of it: exactly once, in order, every byte, the
// memory image, completion order and count, atomics in one order, and that
// everything closes. A seed decides everything.

var (
	randomSeeds = flag.Int("seeds", 500, "how many seeds TestRandomPair tries")
	randomSeed  = flag.Int64("seed", -1, "the only seed TestRandomPair tries; with -v it says what happens")
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
		sum.checkVariety(t)
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
		device := verbcalls.Device(devices[side], c.verbs[side], func() time.Duration { return time.Duration(w.Now()) })
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
	// Nothing is left behind: with all queue pairs gone the world goes quiet.
	if err := w.Run(); err != nil {
		return randomTotals{}, fmt.Errorf("seed %d, after everything was closed: %w", c.seed, err)
	}
	for _, d := range devices {
		if err := unexpectedEvents(d); err != nil {
			return randomTotals{}, fmt.Errorf("seed %d: %w", c.seed, err)
		}
	}
	got := totalsOf(results)
	got.took = time.Duration(w.Now())
	if cause := c.harm(&got); uint64(got.lost) > cause {
		return got, fmt.Errorf("seed %d: %d messages of unreliable connections were lost, but only %d packets", c.seed, got.lost, cause)
	}
	return got, nil
}

// unexpectedEvents reports asynchronous events that nothing in a random case may
// cause: whatever a network does, no queue pair, queue or device is at fault.
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

// harm counts the packets that can have cost a message: those that the network
// lost or damaged, and those that found no receive. There is no bound where
// packets are reordered or duplicated, since one can then cost several messages,
// and where a link goes down, since a port without link sends nothing at all.
func (c *randomCase) harm(got *randomTotals) uint64 {
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
	for _, name := range variety {
		s += fmt.Sprintf("; %s %d", name, t.counters[name])
	}
	return s
}

// variety are the counters of things that random cases must bring about, or
// else they test less than they should.
var variety = []string{
	"retransmitted_pkts", "ack_timeout", "duplicate_request", "out_of_seq_request", "sent_seq_nak", "sent_rnr_nak", "implied_nak",
	"stale_response", "ecn_marked", "cnps_handled", "drop_icrc", "drop_short", "drop_no_receive", "drop_sequence", "retry_exceeded",
}

func (t *randomTotals) checkVariety(tt *testing.T) {
	for _, name := range variety {
		if t.counters[name] < 10 {
			tt.Errorf("%s is %d in %d cases: they no longer reach that part", name, t.counters[name], t.cases)
		}
	}
	// A connection that gives up is checked less far.
	if t.gaveUp*10 > t.reliable {
		tt.Errorf("%d of %d reliable connections gave up: the networks are too bad, or retries are wasted", t.gaveUp, t.reliable)
	}
}
