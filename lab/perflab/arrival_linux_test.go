package perflab

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// observed is a device that records the requests posted to its queue pairs, and the READs whose
// completions were polled.
type observed struct {
	verbs.Context
	posted map[verbs.QPN][]verbs.WROpcode
	reads  map[verbs.QPN]int
}

type observedQP struct {
	verbs.QP
	d *observed
}

func (q observedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		q.d.posted[q.QPN()] = append(q.d.posted[q.QPN()], wrs[i].Opcode)
	}
	return q.QP.PostSend(wrs)
}

type observedCQ struct {
	verbs.CQ
	d *observed
}

func (c observedCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := c.CQ.Poll(wcs)
	for i := range n {
		if wcs[i].Opcode == verbs.WCOpRDMARead {
			c.d.reads[wcs[i].QPN]++
		}
	}
	return n, err
}

func (d *observed) CreateCQ(in verbs.CQInit) (verbs.CQ, error) {
	cq, err := d.Context.CreateCQ(in)
	return observedCQ{cq, d}, err
}

func (d *observed) CreateQP(in verbs.QPInit) (verbs.QP, error) {
	in.SendCQ, in.RecvCQ = in.SendCQ.(observedCQ).CQ, in.RecvCQ.(observedCQ).CQ
	q, err := d.Context.CreateQP(in)
	return observedQP{q, d}, err
}

type observedCM struct{ verbs.CM }

func (d *observed) CM() (verbs.CM, error) {
	m, err := d.Context.CM()
	return observedCM{m}, err
}

func (m observedCM) Connect(qp verbs.QP, addr netip.AddrPort, p verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	return m.CM.Connect(qp.(observedQP).QP, addr, p, timeout)
}

// handover is an exchange between two goroutines.
type handover struct{ put, take chan []byte }

func (h handover) Swap(ctx context.Context, mine []byte) ([]byte, error) {
	h.put <- mine
	select {
	case theirs := <-h.take:
		return theirs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A send or WRITE over a stream completes when TCP has buffered it. On every queue pair the
// measurement must end at the response to a READ after the last message.
func TestStreamRateIncludesLastArrival(t *testing.T) {
	for name, p := range map[string]perf.Program{
		"write": {Stream: &perf.Stream{Op: verbs.OpRDMAWrite, Bytes: 64 << 10, Duration: 5 * time.Millisecond}},
		"send":  {Stream: &perf.Stream{Op: verbs.OpSend, Bytes: 2 << 10, Duration: 5 * time.Millisecond}},
		"rate":  {Rate: &perf.Rate{QPs: 3, Duration: 5 * time.Millisecond}},
	} {
		there, back := make(chan []byte, 1), make(chan []byte, 1)
		seen := &observed{posted: map[verbs.QPN][]verbs.WROpcode{}, reads: map[verbs.QPN]int{}}
		sides := [2]*perf.Side{
			{Role: perf.Client, Service: perf.ServiceIWARP, Exchange: handover{there, back}},
			{Role: perf.Server, Service: perf.ServiceIWARP, Exchange: handover{back, there}},
		}
		for i, s := range sides {
			s.Addr = netip.AddrFrom4([4]byte{127, 73, 1, byte(2 + i)})
			d := must.Get(deviceOpener(conformance.IWARP, nil)(nics.NICConfig{Addr: s.Addr}, false))(t)
			defer d.Close()
			s.Device = d
		}
		seen.Context = sides[0].Device
		sides[0].Device = seen
		served := make(chan error, 1)
		go func() {
			_, err := p.Run(t.Context(), sides[1])
			served <- err
		}()
		if _, err := p.Run(t.Context(), sides[0]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := <-served; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(seen.posted) == 0 || name == "rate" && len(seen.posted) != 3 {
			t.Errorf("%s: %d queue pairs were used", name, len(seen.posted))
		}
		for qp, ops := range seen.posted {
			read := func(op verbs.WROpcode) bool { return op == verbs.OpRDMARead }
			if first := slices.IndexFunc(ops, read); first < 1 || !read(ops[len(ops)-1]) {
				t.Errorf("%s: of %d requests of queue pair %#x the first READ is number %d, the last is %v", name, len(ops), qp, first, ops[len(ops)-1])
			}
			// One READ ends the warm-up, one the measurement.
			if seen.reads[qp] != 2 {
				t.Errorf("%s: queue pair %#x waited for %d READs", name, qp, seen.reads[qp])
			}
		}
	}
}
