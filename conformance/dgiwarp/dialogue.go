package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// dialogueMemory has the memory of a queue pair in a dialogue, with its expected content.
type dialogueMemory struct {
	regions []*rig.Memory
	want    [][]byte
}

// add adds a region, and returns its expected content.
func (m *dialogueMemory) add(r *rig.Memory) []byte {
	m.regions, m.want = append(m.regions, r), append(m.want, bytes.Clone(r.Buf))
	return m.want[len(m.want)-1]
}

// compare fails the case unless all octets of memory, and those around it, are as expected.
func (m *dialogueMemory) compare(r *rig.Rig) {
	for i, region := range m.regions {
		r.ExpectBytes(region, 0, m.want[i])
		r.ExpectUnchangedOutside(region, 0, len(region.Buf))
	}
}

// part is octets of localMem.
type part struct{ off, n int }

// recvBuffers are the receives of a queue pair in a dialogue. They take turns in localMem.
type recvBuffers struct {
	q      *deviceQP
	want   []byte // expected content of localMem
	posted map[uint64][]part
	nextID uint64
	free   int // offset of the next receive
}

// post posts a receive of n octets, as two SGEs if split, the length of the first, is in 1 to n-1.
// Receives take the memory of localMem in turn. The Parts of the result are slices of want, where
// the model writes the content that it expects.
func (b *recvBuffers) post(n, split int) model.DGReceive {
	b.nextID++
	if b.free+n > len(b.want) {
		b.free = 0
	}
	parts := []part{{b.free, n}}
	if split > 0 && split < n {
		parts = []part{{b.free, split}, {b.free + split, n - split}}
	}
	b.free += n
	r := model.DGReceive{ID: b.nextID}
	var sgl []verbs.SGE
	for _, p := range parts {
		sgl = append(sgl, b.q.localMem.SGE(p.off, p.n))
		r.Parts = append(r.Parts, b.want[p.off:][:p.n])
	}
	b.q.Note("post a receive of %d octets: %d", n, r.ID)
	b.q.PostRecv(b.q.qp, r.ID, sgl...)
	b.posted[r.ID] = parts
	return r
}

// grhArea returns the GRH area of a completed receive: the 40 octets where UD has the GRH. It makes
// its present content the expected one, for later comparisons of memory.
func (b *recvBuffers) grhArea(r model.DGReceive) []byte {
	var area []byte
	for i, p := range b.posted[r.ID] {
		n := min(p.n, grhAreaLen-len(area))
		area = append(area, b.q.localMem.Buf[p.off:][:n]...)
		copy(r.Parts[i], b.q.localMem.Buf[p.off:][:n])
	}
	return area
}

// checkGRHArea fails the case unless the GRH area of a receive, 40 octets, has the IP header of a
// UDP packet between two addresses, and the UDP source port in octets 2 and 3.
func (h *host) checkGRHArea(area []byte, from netip.AddrPort, to netip.Addr) {
	header, src, dst, version, protocol := area, area[8:24], area[24:40], byte(6), area[6]
	if from.Addr().Is4() {
		header = area[20:]
		src, dst, version, protocol = header[12:16], header[16:20], 4, header[9]
	}
	port := binary.BigEndian.Uint16(area[2:])
	h.Check(header[0]>>4 == version && protocol == packet.ProtocolUDP && port == from.Port() &&
		bytes.Equal(src, from.Addr().AsSlice()) && bytes.Equal(dst, to.AsSlice()),
		fmt.Sprintf("a GRH area from %v to %v", from, to), "% x", area)
}

// checkCompletions fails the case unless the completions are the expected ones, in order. Of failed
// ones it compares only the work request ID, the status and the QPN.
func (h *host) checkCompletions(want, got []verbs.WC) {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			h.Fail(rig.Describe(&want[i]), "nothing")
		case i >= len(want):
			h.Fail("no more completions", "%s", rig.Describe(&got[i]))
		}
		w, g := want[i], got[i]
		h.Check(w.WRID == g.WRID && w.Status == g.Status && w.QPN == g.QPN, rig.Describe(&w), "%s of queue pair %#x", rig.Describe(&g), uint32(g.QPN))
		if w.Status == verbs.WCSuccess {
			g.VendorErr, g.PKeyIndex, g.SL = 0, 0, 0 // not specified
			if w.Opcode&verbs.WCOpRecv == 0 {
				g.ByteLen, g.SrcQP = w.ByteLen, w.SrcQP // a send has none
			}
			h.Check(w == g, fmt.Sprintf("%+v", w), "%+v", g)
		}
	}
}

// checkEvents fails the case unless each queue pair raises exactly as many events as counts has for
// it. It counts down in counts.
func (h *host) checkEvents(counts map[verbs.QPN]int) {
	total := 0
	for _, n := range counts {
		total += n
	}
	for range total {
		e, err := h.Device.WaitAsync(h.ResponseTimeout())
		h.Check(err == nil, "an event of a queue pair", "%v", err)
		h.Note("event %v", e.Type)
		h.Check(e.QP != nil && counts[e.QP.QPN()] > 0, "an event of the queue pair that got a wrong segment", "%v", e.Type)
		counts[e.QP.QPN()]--
	}
	h.ExpectNoEvent()
}

// takeCompletions polls all completions, and returns those of each queue pair: of requests, whose
// IDs begin at sendIDs, and of receives.
func (h *host) takeCompletions() (sends, receives map[verbs.QPN][]verbs.WC) {
	sends, receives = make(map[verbs.QPN][]verbs.WC), make(map[verbs.QPN][]verbs.WC)
	for _, wc := range h.Completions() {
		if wc.WRID >= sendIDs {
			sends[wc.QPN] = append(sends[wc.QPN], wc)
		} else {
			receives[wc.QPN] = append(receives[wc.QPN], wc)
		}
	}
	return sends, receives
}

// sendIDs is the first WRID of requests in a dialogue.
const sendIDs = 1 << 32

// margin is the largest difference between the clocks of a dialogue's model and the device: a
// timer of the device that is due within it may have expired or not.
func (h *host) margin() time.Duration {
	if h.Virtual {
		return time.Millisecond
	}
	return 20*time.Millisecond + h.ReactionTime()
}

// settle waits until no time in deadlines is within the margin between the clocks of the model and
// of the device: near a deadline, the timer of the device may have expired or not. It returns the
// time.
func (h *host) settle(deadlines func() []time.Duration) time.Duration {
	for {
		now, margin := h.Now(), h.margin()
		i := slices.IndexFunc(deadlines(), func(d time.Duration) bool { return now > d-margin && now < d+margin })
		if i < 0 {
			return now
		}
		h.Sleep(deadlines()[i] + margin - now)
	}
}

// choice is a kind of step, with its weight among the kinds of a mix.
type choice[S any] struct {
	weight int
	text   string
	play   func(S, *rand.Rand)
}

// dgStep is a step of a dialogue. Play draws its details from the seed and the state.
type dgStep[S any] struct {
	choice[S]
	seed uint64
}

func (s dgStep[S]) String() string { return s.text }

// drawStep draws a kind of step by the weights of a mix, and a seed for the details of the step.
func drawStep[S any](mix []choice[S], r *rand.Rand) dgStep[S] {
	total := 0
	for _, c := range mix {
		total += c.weight
	}
	k := r.IntN(total)
	for _, c := range mix {
		if k -= c.weight; k < 0 {
			return dgStep[S]{c, r.Uint64()}
		}
	}
	panic("unreachable")
}

// run plays the step on a session.
func (s dgStep[S]) run(session S) { s.play(session, rand.New(rand.NewPCG(s.seed, 1))) }

// causesMatch reports whether a segment is a Terminate about the wrong one, with one of the causes.
func causesMatch(got *iwarp.Segment, wrong iwarp.Segment, causes []iwarp.Cause) bool {
	return got != nil && slices.ContainsFunc(causes, func(c iwarp.Cause) bool {
		var d packet.Differences
		iwarp.Terminate(c).Quoting(wrong).QN(2).MO(0).Last(true).DV(1).RV(1).DDPReserved(0).RDMAPReserved(0).Diff(&d, *got)
		return len(d) == 0
	})
}

// nativeWord returns a word of memory in the byte order of the device's host.
func nativeWord(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// beginDialogue discards the packets, completions and events of an earlier dialogue (a sequence of
// random steps) that ended with a violation.
func (h *host) beginDialogue() {
	h.drainArrived()
	h.Completions()
	for {
		if _, err := h.Device.WaitAsync(0); err != nil {
			return
		}
	}
}
