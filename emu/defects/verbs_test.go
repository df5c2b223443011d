package defects

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// programs has a program for each defect, and its log on a device without and with the defect.
var programs = map[string]struct {
	program            func(*world)
	correct, defective string
}{
	"ArmsWithoutChannel": {
		program: func(w *world) {
			w.noteResult(must.Get(w.dev.d.CreateCQ(verbs.CQInit{Depth: 1}))(w).ReqNotify(false))
		},
		correct: "refused", defective: "accepted",
	},
	"GRHFlagOnConnected": {
		program: func(w *world) {
			w.connect()
			must.Get(w.dev.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: []verbs.SGE{verbs.SGEOf(w.dev.mr, 0, 64)}}}))(w)
			w.peer.post(w.peer.wr(2, verbs.OpSend))
			w.dev.completions()
			w.dev.post(w.dev.wr(3, verbs.OpRDMARead))
			w.dev.completions()
		},
		correct: "1 SUCCESS; 3 SUCCESS", defective: "1 SUCCESS GRH; 3 SUCCESS",
	},
	"RecvErrorIsQPOp": {
		program: func(w *world) {
			w.connect()
			bad := w.dev.wr(1, verbs.OpSend)
			bad.SGL[0].LKey++
			w.dev.post(bad)
			w.dev.completions()
			w.reconnect(nil)
			must.Get(w.dev.qp.PostRecv([]verbs.RecvWR{{WRID: 2, SGL: bad.SGL}}))(w)
			w.peer.post(w.peer.wr(3, verbs.OpSend))
			w.dev.completions()
			srq := must.Get(w.dev.d.CreateSRQ(verbs.SRQInit{PD: w.dev.pd, MaxWR: 4, MaxSGE: 1}))(w)
			w.reconnect(srq)
			must.Get(srq.PostRecv([]verbs.RecvWR{{WRID: 4, SGL: bad.SGL}}))(w)
			w.peer.post(w.peer.wr(5, verbs.OpSend))
			w.dev.completions()
		},
		correct:   "1 LOC_PROT_ERR; 2 LOC_PROT_ERR; 4 LOC_PROT_ERR",
		defective: "1 LOC_PROT_ERR; 2 LOC_QP_OP_ERR; 4 LOC_QP_OP_ERR",
	},
	"RdAtomicRoundsUp": {
		program: func(w *world) {
			w.connect()
			a := verbs.QPAttr{State: verbs.QPStateSQD}
			must.Do(w, w.dev.qp.Modify(a, verbs.QPAttrState))
			a.MaxRdAtomic, a.MaxDestRdAtomic = 3, 5
			must.Do(w, w.dev.qp.Modify(a, verbs.QPAttrState|verbs.QPAttrMaxQPRdAtomic|verbs.QPAttrMaxDestRdAtomic))
			a = must.Get(w.dev.qp.Query())(w)
			w.note("%d %d", a.MaxRdAtomic, a.MaxDestRdAtomic)
			a.MaxRdAtomic = 255
			w.noteResult(w.dev.qp.Modify(a, verbs.QPAttrState|verbs.QPAttrMaxQPRdAtomic))
		},
		correct: "3 5; refused", defective: "4 8; refused",
	},
	"RefusedWRStays": {
		program: func(w *world) {
			w.dev.post(w.dev.wr(1, verbs.OpRDMAWrite))
			w.connect()
			w.proc.Sleep(time.Second) // the peer was not ready: wait for a retransmission
			w.dev.completions()
			w.dev.newQP(nil)
			w.peer.newQP(nil)
			w.dev.post(w.dev.wr(2, verbs.OpRDMAWrite))
			must.Do(w, w.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
			w.connect()
			w.dev.completions()
		},
		correct: "invalid; invalid", defective: "invalid; 1 SUCCESS; invalid",
	},
	"SQNeverDrains": {
		program: func(w *world) {
			w.connect()
			sqd := verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: true}
			must.Do(w, w.dev.qp.Modify(sqd, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
			w.note("%v", must.Get(w.dev.qp.Query())(w).SQDraining)
			w.dev.events()
		},
		correct: "false; SQ_DRAINED", defective: "true",
	},
	"NoQPEvents": {
		program: func(w *world) {
			w.connect()
			bad := w.peer.wr(1, verbs.OpRDMAWrite)
			bad.Remote.RKey++
			w.peer.post(bad)
			w.dev.events()
		},
		correct: "QP_ACCESS_ERR", defective: "",
	},
	"NoLastWQEEvent": {
		program: func(w *world) {
			w.reconnect(must.Get(w.dev.d.CreateSRQ(verbs.SRQInit{PD: w.dev.pd, MaxWR: 4, MaxSGE: 1}))(w))
			must.Do(w, w.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			w.dev.events()
		},
		correct: "QP_LAST_WQE_REACHED", defective: "",
	},
	"ValuesUnchecked": {
		program: func(w *world) {
			w.noteResult(w.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, PKeyIndex: 9}, toInit))
			w.reconnect(nil)
			w.noteResult(w.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, MinRNRTimer: 33}, verbs.QPAttrState|verbs.QPAttrMinRNRTimer))
			w.note("%d", must.Get(w.dev.qp.Query())(w).MinRNRTimer)
		},
		correct: "refused; refused; 12", defective: "accepted; accepted; 1",
	},
	"RTRIgnored": {
		program: func(w *world) {
			w.noteResult(w.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState))
			w.note("%v", must.Get(w.dev.qp.Query())(w).State)
		},
		correct: "refused; IBV_QPS_RESET", defective: "accepted; IBV_QPS_RESET",
	},
	"InvalidateUnreported": {
		program: func(w *world) {
			w.connect()
			window := must.Get(w.dev.pd.AllocMW(verbs.MWType2))(w)
			key := verbs.NextRKey(window.RKey())
			bind := w.dev.wr(1, verbs.OpBindMW)
			bind.Bind = verbs.Bind{MW: window, RKey: key, Info: verbs.BindInfo{MR: w.dev.mr, Addr: w.dev.mr.Addr(), Length: 8}}
			w.dev.post(bind)
			must.Get(w.dev.qp.PostRecv([]verbs.RecvWR{{WRID: 2, SGL: []verbs.SGE{verbs.SGEOf(w.dev.mr, 0, 64)}}}))(w)
			w.proc.Sleep(time.Millisecond)
			invalidate := w.peer.wr(3, verbs.OpSendInv)
			invalidate.InvalidateRKey = key
			w.peer.post(invalidate)
			w.dev.completions()
		},
		correct: "1 SUCCESS; 2 SUCCESS invalidated", defective: "1 SUCCESS; 2 SUCCESS",
	},
	"CounterStuck=sent_pkts": {
		program: func(w *world) {
			w.connect()
			w.dev.post(w.dev.wr(1, verbs.OpRDMAWrite))
			w.proc.Sleep(time.Millisecond)
			for _, c := range w.dev.d.Counters() {
				if c.Name == "sent_pkts" {
					w.note("%d", c.Value)
				}
			}
		},
		correct: "1", defective: "0",
	},
	"AtomicOperandsSwapped": {
		program: func(w *world) {
			w.connect()
			cas := w.dev.wr(1, verbs.OpAtomicCmpAndSwp)
			cas.Atomic = verbs.Atomic{CompareAdd: 0, Swap: 5}
			w.dev.post(cas)
			w.dev.completions()
			w.note("%d", w.peer.buf[0])
		},
		correct: "1 SUCCESS; 5", defective: "1 SUCCESS; 0",
	},
	"WCDoubled": {program: fiveWrites, correct: fiveCompletions, defective: "1 SUCCESS; 2 SUCCESS; 3 SUCCESS; 4 SUCCESS; 4 SUCCESS; 5 SUCCESS"},
	"WCLost":    {program: fiveWrites, correct: fiveCompletions, defective: "1 SUCCESS; 2 SUCCESS; 3 SUCCESS; 5 SUCCESS"},
}

const fiveCompletions = "1 SUCCESS; 2 SUCCESS; 3 SUCCESS; 4 SUCCESS; 5 SUCCESS"

func fiveWrites(w *world) {
	w.connect()
	for id := range uint64(5) {
		w.dev.post(w.dev.wr(id+1, verbs.OpRDMAWrite))
	}
	w.dev.completions()
}

func TestDefectsMisbehaveAsDocumented(t *testing.T) {
	if len(programs) != len(AllVerbDefects()) {
		t.Errorf("%d programs for %d defects", len(programs), len(AllVerbDefects()))
	}
	for _, info := range AllVerbDefects() {
		spec := strings.Replace(info.Name, "=NAME", "=sent_pkts", 1)
		c := programs[spec]
		t.Run(spec, func(t *testing.T) {
			var q VerbDefects
			if got := run(t, q, c.program); got != c.correct {
				t.Errorf("without the defect:\n\t%s, want\n\t%s", got, c.correct)
			}
			must.Do(t, q.Set(spec, true))
			if got := run(t, q, c.program); got != c.defective || c.correct == c.defective {
				t.Errorf("with the defect:\n\t%s, want\n\t%s", got, c.defective)
			}
			if err := q.Set(spec, false); err != nil || q != (VerbDefects{}) {
				t.Errorf("%v, %+v", err, q)
			}
		})
	}
}

// Events hold the handles that the program created, not those of the inner device.
func TestEventsHaveProgramHandles(t *testing.T) {
	run(t, VerbDefects{WCDoubled: true}, func(w *world) {
		w.connect()
		must.Do(w, w.dev.cq.ReqNotify(false))
		w.dev.post(w.dev.wr(1, verbs.OpRDMAWrite))
		if cq := must.Get(w.dev.ch.Wait(verbs.Forever))(w); cq != w.dev.cq {
			t.Errorf("event of %v", cq)
		}
		bad := w.peer.wr(2, verbs.OpRDMAWrite)
		bad.Remote.RKey++
		w.peer.post(bad)
		e := must.Get(w.dev.d.WaitAsync(verbs.Forever))(w)
		if e.QP != w.dev.qp || e.CQ != nil || e.SRQ != nil {
			t.Errorf("%+v", e)
		}
		must.Do(w, w.dev.qp.Close())
		must.Do(w, w.dev.cq.Close())
		if d := w.dev.d.(*device); len(d.handles) != 0 {
			t.Errorf("closed handles are kept: %v", d.handles)
		}
	})
}

// The connection manager connects queue pairs of a defective device, on both sides.
func TestCMConnectsQPsOfDefectiveDevice(t *testing.T) {
	run(t, VerbDefects{RefusedWRStays: true}, func(w *world) {
		for port, ends := range [][2]*side{{w.dev, w.peer}, {w.peer, w.dev}} {
			addr := netip.AddrPortFrom(ends[0].addr, uint16(9+port))
			l := must.Get(must.Get(ends[0].d.CM())(w).Listen(addr, verbs.PortSpaceTCP, 1))(w)
			w.proc.World().Go("active", func(*sim.Proc) error {
				_, err := must.Get(ends[1].d.CM())(w).Connect(ends[1].qp, addr, verbs.ConnParam{RetryCount: 7}, verbs.Forever)
				return err
			})
			must.Get(must.Get(l.GetRequest(verbs.Forever))(w).Accept(ends[0].qp, verbs.ConnParam{}, verbs.Forever))(w)
			if a := must.Get(ends[0].qp.Query())(w); a.State != verbs.QPStateRTS {
				t.Error(a.State)
			}
			w.dev.newQP(nil)
			w.peer.newQP(nil)
		}
	})
}

func TestDeviceWithoutDefectsIsNotWrapped(t *testing.T) {
	var d verbs.Context = &device{}
	if WrapDevice(d, VerbDefects{}, nil) != d {
		t.Error("a device without defects is wrapped")
	}
}
