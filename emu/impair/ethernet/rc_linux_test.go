package ethernet

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/uswitch"
	"github.com/fabrictest/fabrictest/verbs"
)

// end is one side of a reliable connection.
type end struct {
	dev *softroce.Device
	cq  verbs.CQ
	ch  verbs.CompChannel
	mr  verbs.MR
	buf []byte
	qp  verbs.QP
}

func openEnd(tb testing.TB, h *host, v6 bool) *end {
	tb.Helper()
	e := &end{buf: make([]byte, 1<<20)}
	must.Do(tb, h.Do(func() (err error) {
		e.dev, err = softroce.OnUDP(udplink.Config{}, softroce.Config{Addrs: []netip.Addr{h.addr(v6)}})
		return err
	}))
	tb.Cleanup(func() { must.Do(tb, e.dev.Close()) })
	pd := must.Get(e.dev.AllocPD())(tb)
	e.ch = must.Get(e.dev.CreateCompChannel())(tb)
	e.cq = must.Get(e.dev.CreateCQ(verbs.CQInit{Depth: 64, Channel: e.ch}))(tb)
	e.mr = must.Get(pd.RegMR(verbs.MRInit{Buf: e.buf, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite}))(tb)
	e.qp = must.Get(e.dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: pd, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))(tb)
	return e
}

// join connects an end with PSN 0, so that events can match PSNs.
func (e *end) join(tb testing.TB, to *end) {
	tb.Helper()
	gid := must.Get(to.dev.QueryGID(1, 0))(tb)
	port := must.Get(e.dev.QueryPort(1))(tb)
	attr := verbs.QPAttr{
		Port: 1, Access: verbs.AccessRemoteWrite, PathMTU: port.ActiveMTU, DestQPN: to.qp.QPN(),
		AH:          verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: gid.GID, HopLimit: 64}},
		MinRNRTimer: 1, Timeout: 17, RetryCnt: 7, RNRRetry: 7, // 4 s in all
	}
	for _, step := range []struct {
		state verbs.QPState
		mask  verbs.QPAttrMask
	}{
		{verbs.QPStateInit, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags},
		{verbs.QPStateRTR, verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
		{verbs.QPStateRTS, verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
	} {
		attr.State = step.state
		must.Do(tb, e.qp.Modify(attr, step.mask|verbs.QPAttrState))
	}
}

// write sends an RDMA WRITE of all memory and waits for the completion.
func (e *end) write(tb testing.TB, to *end) {
	tb.Helper()
	must.Get(e.qp.PostSend([]verbs.SendWR{{
		Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, len(e.buf))},
		Remote: verbs.Remote{Addr: to.mr.Addr(), RKey: to.mr.RKey()},
	}}))(tb)
	var wc [1]verbs.WC
	for {
		must.Do(tb, e.cq.ReqNotify(false))
		n := must.Get(e.cq.Poll(wc[:]))(tb)
		if n == 1 {
			break
		}
		must.Get(e.ch.Wait(20 * time.Second))(tb)
	}
	if wc[0].Status != verbs.WCSuccess {
		tb.Fatalf("completed with %v", wc[0].Status)
	}
}

// TestRCRecoversFromExactEvents runs the whole stack over the switch: the
// impaired PSNs are known, and memory is correct in the end.
func TestRCRecoversFromExactEvents(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %v", v6), func(t *testing.T) {
			s, ha, hb := wired(t, 4200, nil)
			a, b := openEnd(t, ha, v6), openEnd(t, hb, v6)
			a.join(t, b)
			b.join(t, a)
			flow := impair.Flow(b.qp.QPN())
			once := func(psn uint32, do impair.Action) impair.Event {
				return impair.Event{Match: impair.Match{Flow: &flow, Seq: &psn}, Occurrence: 1, Action: do}
			}
			path := newPath(t, impair.Config{Events: []impair.Event{
				once(7, impair.Action{Kind: impair.Drop}),
				{Match: impair.Match{Flow: &flow, Seq: new(uint32(7))}, Occurrence: 2, Action: impair.Action{Kind: impair.Drop}}, // and its retransmission
				once(20, impair.Action{Kind: impair.CorruptBit, Bit: 1000}),
				once(40, impair.Action{Kind: impair.Duplicate}),
				once(60, impair.Action{Kind: impair.Reorder, Count: 2, Delay: time.Second}),
				once(80, impair.Action{Kind: impair.Truncate, Bytes: 100}),
				once(100, impair.Action{Kind: impair.SetField, Field: "bth.pkey", Value: 0x1234}), // with a correct ICRC
				once(120, impair.Action{Kind: impair.SetECN, ECN: 3}),
			}}, softroce.Dissector{})
			must.Do(t, s.SetHandler(0, uswitch.In, path))
			for i := range a.buf {
				a.buf[i] = byte(i * 31 >> 3)
			}
			a.write(t, b)
			// The query also waits until the device's goroutine no longer uses
			// the memory.
			counters := b.dev.Counters()
			if !bytes.Equal(a.buf, b.buf) {
				t.Error("memory differs")
			}
			s.WhileQuiesced(func() {
				if left := path.Pipe().Unfired(); len(left) > 0 || path.Pipe().Err() != nil {
					t.Errorf("events that did not happen: %+v, %v", left, path.Pipe().Err())
				}
			})
			if st := s.Stats(); uswitch.SupportsUDPGSO() && st.Ports[0].In.GSOPackets == 0 {
				t.Error("no super-packets: they were to be cut")
			}
			for _, c := range counters {
				want, known := map[string]uint64{"drop_icrc": 2, "drop_pkey": 1, "ecn_marked": 1}[c.Name]
				if known && c.Value != want {
					t.Errorf("the receiver counts %s %d, want %d", c.Name, c.Value, want)
				}
			}
		})
	}
}

// BenchmarkRC writes 1 MiB messages over a plain and an impairing switch.
func BenchmarkRC(b *testing.B) {
	for name, spec := range map[string]*impair.Spec{"transparent": nil, "mark": {MarkPPM: 1}, "loss": {LossPPM: 10_000}} {
		b.Run(name, func(b *testing.B) {
			s, ha, hb := wired(b, 4200, func(c *uswitch.Config) {
				if spec != nil {
					for i := range c.Ports {
						c.Ports[i].In, c.Ports[i].Out = specPath(b, *spec), specPath(b, *spec)
					}
				}
			})
			x, y := openEnd(b, ha, true), openEnd(b, hb, true)
			x.join(b, y)
			y.join(b, x)
			before := s.Stats().CPU
			b.SetBytes(int64(len(x.buf)))
			for b.Loop() {
				x.write(b, y)
			}
			b.ReportMetric(float64(len(x.buf))*8*float64(b.N)/float64(s.Stats().CPU-before), "Gb/s/core")
			b.ReportMetric(float64(len(x.buf))*8*float64(b.N)/float64(b.Elapsed()), "Gb/s")
			st := s.Stats().Ports
			b.ReportMetric(float64(st[0].In.Drops.Total()+st[1].In.Drops.Total()+st[0].Out.Drops.Total()+st[1].Out.Drops.Total()), "drops")
		})
	}
}
