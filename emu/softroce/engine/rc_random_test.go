package engine

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	seeds   = flag.Int("engine.seeds", 200, "how many random conversations to run")
	oneSeed = flag.Int64("engine.seed", -1, "run only the random conversation of this seed")
)

// dice makes choices with a seeded generator.
type dice struct{ *rand.Rand }

func (d dice) pick(n int) int { return d.IntN(n) }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))} }

// rc/tmo/14: over any lossy network that delivers eventually, every request is
// executed once and completes, in order.
func TestRCRandomConversations(t *testing.T) {
	first, end := uint64(0), uint64(*seeds)
	if *oneSeed >= 0 {
		first, end = uint64(*oneSeed), uint64(*oneSeed)+1
	}
	var lost, moved, failed int
	for seed := first; seed < end; seed++ {
		w := newConversation(t, newDice(seed), seed%4 == 3)
		if err := w.run(); err != nil {
			t.Fatalf("seed %d at %v: %v\nreplay: go test ./emu/softroce/engine -run TestRCRandomConversations -engine.seed=%d", seed, w.net.now, err, seed)
		}
		lost, moved = lost+w.net.lost, moved+w.net.moved
		for _, f := range w.flows {
			if f.failed {
				failed++
			}
		}
	}
	t.Logf("%d of %d packets lost, %d flows failed", lost, moved, failed)
	if end-first >= 100 && (lost == 0 || failed == 0) {
		t.Error("the weather was too good to prove anything")
	}
}

// conversation is two NICs with several connections, each used in both directions.
type conversation struct {
	luck  choices
	net   *lossyNet
	flows []*direction
	byQP  map[*host]map[verbs.QPN][2]*direction // flows that a QP sends, and receives
	ones  map[*host]map[uint64]bool             // what FETCH_ADDs of one found
	brief bool                                  // few retries: failure is allowed
}

// constData is what the hosts send. It is the same in all conversations, as
// nothing depends on it but being told apart.
var constData = [2][]byte{noise(1), noise(2)}

func noise(seed uint64) []byte {
	b := make([]byte, constSize)
	for k := range b {
		b[k] = byte(mix(seed<<32 | uint64(k)))
	}
	return b
}

// mix scatters a number over all bits.
func mix(x uint64) uint64 {
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// newConversation generates two NICs, connections, requests and network
// impairments.
func newConversation(t testing.TB, luck choices, brief bool) *conversation {
	w := &conversation{luck: luck, brief: brief, byQP: map[*host]map[verbs.QPN][2]*direction{}, ones: map[*host]map[uint64]bool{}}
	forever := !brief && luck.pick(2) == 0
	sky := weather{
		lossPercent: luck.pick(21), dupPercent: luck.pick(6), corruptPercent: luck.pick(4), reorderPercent: luck.pick(16),
		delayMax: 200 * time.Microsecond,
	}
	switch {
	case brief:
		sky.lossPercent += 10
	case !forever:
		sky.dropsMax = 2
	}
	var hosts [2]*host
	for i := range hosts {
		hosts[i] = newHost(t, []string{"fd00::1", "fd00::2"}[i], func(c *Config) {
			c.WindowPackets = 1 + luck.pick([]int{2, 20, 300}[luck.pick(3)])
			c.Policy.UnlimitedRetries = forever
		})
		h := hosts[i]
		copy(h.mem, constData[i])
		w.byQP[h], w.ones[h] = map[verbs.QPN][2]*direction{}, map[uint64]bool{}
	}
	w.net = newLossyNet(luck, sky, hosts[0], hosts[1])
	for i := range 1 + luck.pick(3) {
		w.connect(i, hosts)
	}
	return w
}

// connect adds a connection and generates the requests of both ends.
func (w *conversation) connect(i int, hosts [2]*host) {
	luck := w.luck
	mtu := verbs.MTU256 + verbs.MTU(luck.pick(5))
	timeout, retries := 8+uint8(luck.pick(3)), uint8(7)
	if w.brief {
		retries = uint8(luck.pick(3))
	}
	var qps [2]*QP
	var psn [2]uint32
	var depth [2]uint8 // READs that each end has room for
	for k, h := range hosts {
		qps[k] = h.qp(verbs.QPTypeRC, func(c *QPConfig) { c.Caps.MaxSendWR = 1 + luck.pick(40) })
		psn[k] = uint32(luck.pick(1 << 24))
		if luck.pick(2) == 0 {
			psn[k] = uint32(1<<24-1-luck.pick(40)) & uint32(1<<(23+luck.pick(2))-1)
		}
		depth[k] = 1 + uint8(luck.pick(8))
	}
	for k, h := range hosts {
		h.ready(qps[k], hosts[1-k].addr, qps[1-k].num, func(a *verbs.QPAttr) {
			a.PathMTU, a.Timeout, a.RetryCnt, a.RNRRetry = mtu, timeout, retries, 7
			a.MinRNRTimer = 1 + uint8(luck.pick(10))
			a.SQPSN, a.RQPSN = psn[k], psn[1-k]
			a.MaxDestRdAtomic, a.MaxRdAtomic = depth[k], 1+uint8(luck.pick(int(depth[1-k])))
		})
	}
	at := constSize + i*flowSize
	for k := range hosts {
		f := &direction{
			name: fmt.Sprintf("connection %d from host %d (MTU %v)", i, k, mtu), src: hosts[k], dst: hosts[1-k], q: qps[k], peer: qps[1-k],
			layout: layout{zoneAt: at, sinkAt: at + zoneSize, sinkTo: at + zoneSize + sinkSize, slotAt: at + zoneSize + sinkSize},
		}
		f.write(luck, 5+luck.pick(30), mtu.Bytes())
		w.flows = append(w.flows, f)
	}
	for k, h := range hosts {
		sending, receiving := w.flows[len(w.flows)-2+k], w.flows[len(w.flows)-1-k]
		w.byQP[h][verbs.QPN(qps[k].num)] = [2]*direction{sending, receiving}
	}
}

// run runs the simulation to its end.
func (w *conversation) run() error {
	for _, f := range w.flows {
		w.apply(f, 0)
	}
	const hang = mono.Time(20 * time.Minute)
	for steps := 0; w.net.step(); steps++ {
		if err := w.poll(); err != nil {
			return err
		}
		if w.net.now > hang || steps > 3_000_000 {
			return fmt.Errorf("still not over after %d steps", steps)
		}
	}
	return w.verdict()
}

// apply posts requests and receives of a direction at random times until all are
// posted.
func (w *conversation) apply(f *direction, now mono.Time) {
	w.net.schedule(now+1000+mono.Time(w.luck.pick(100_000)), func() {
		if err := f.post(w.net.now, 1+w.luck.pick(8)); err != nil {
			panic(err)
		}
		for range 3 - w.luck.pick(4) {
			if err := f.postRecv(w.luck); err != nil {
				panic(err)
			}
		}
		over := f.posted == len(f.program) && f.received == len(f.messages)
		dead := f.q.State() == verbs.QPStateErr && f.posted == len(f.program)
		if !over && !dead {
			w.apply(f, w.net.now)
		}
	})
}

// poll checks all completions.
func (w *conversation) poll() error {
	for _, h := range w.net.hosts {
		for _, wc := range h.poll() {
			pair := w.byQP[h][wc.QPN]
			check := pair[0].sent
			if wc.WRID&recvID != 0 {
				check = pair[1].delivered
			}
			if err := check(&wc); err != nil {
				return err
			}
			if err := w.noteOne(pair[0], h, &wc); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteOne checks that no two FETCH_ADDs of 1 returned the same value.
func (w *conversation) noteOne(f *direction, h *host, wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCOpFetchAdd || !f.program[wc.WRID].ones {
		return nil
	}
	found := binary.LittleEndian.Uint64(h.mem[f.program[wc.WRID].sink:])
	if w.ones[f.dst][found] {
		return fmt.Errorf("%s: two FETCH_ADDs found %d", f.name, found)
	}
	w.ones[f.dst][found] = true
	return nil
}

// verdict checks the final state.
func (w *conversation) verdict() error {
	if w.brief {
		return w.failureVerdict()
	}
	for _, h := range w.net.hosts {
		var ones, sum uint64
		for _, f := range w.flows {
			if f.dst != h {
				continue
			}
			if err := f.checkEnd(); err != nil {
				return err
			}
			for i := range f.program {
				if f.program[i].ones {
					ones++
				}
				sum += f.program[i].add
			}
		}
		if got := binary.LittleEndian.Uint64(h.mem[onesAt:]); got != ones {
			return fmt.Errorf("%d FETCH_ADDs of one left %d", ones, got)
		}
		if got := binary.LittleEndian.Uint64(h.mem[sumAt:]); got != sum {
			return fmt.Errorf("FETCH_ADDs left %d, their sum is %d", got, sum)
		}
	}
	return nil
}

// failureVerdict checks connections that may have failed: either both directions
// ran to their end, or both ends know of the failure as soon as they use it.
func (w *conversation) failureVerdict() error {
	for i := 0; i < len(w.flows); i += 2 {
		a, b := w.flows[i], w.flows[i+1]
		if a.q.State() != verbs.QPStateErr && b.q.State() != verbs.QPStateErr {
			for _, f := range []*direction{a, b} {
				if err := f.checkEnd(); err != nil {
					return err
				}
			}
			continue
		}
		for _, f := range []*direction{a, b} {
			if f.q.State() != verbs.QPStateErr {
				f.program = append(f.program[:f.posted:f.posted], step{wr: verbs.SendWR{WRID: uint64(f.posted), Opcode: verbs.OpRDMAWrite}})
				if err := f.post(w.net.now, 1); err != nil {
					return err
				}
			}
		}
	}
	for w.net.step() {
		if err := w.poll(); err != nil {
			return err
		}
	}
	for i := 0; i < len(w.flows); i += 2 {
		a, b := w.flows[i], w.flows[i+1]
		if a.q.State() != b.q.State() {
			return fmt.Errorf("%s is in %v, %s in %v", a.name, a.q.State(), b.name, b.q.State())
		}
		if a.q.State() != verbs.QPStateErr {
			continue
		}
		for _, f := range []*direction{a, b} {
			if !f.q.sq.empty() || f.done != f.posted {
				return fmt.Errorf("%s: %d of %d requests completed", f.name, f.done, f.posted)
			}
			if err := f.checkFailed(); err != nil {
				return err
			}
		}
	}
	return nil
}
