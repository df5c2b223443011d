package verbcalls

import (
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// driverTalks are about defects of Linux's soft-RoCE and soft-iWARP.
var driverTalks = map[string]defectTalk{
	"GRHFlagOnConnected": {
		talk:      func(c *talk) { c.note("%v", c.received(verbs.OpSend).Flags&verbs.WCWithGRH != 0) },
		sound:     "false",
		defective: "true",
	},
	"RecvErrorIsQPOp": {
		talk: func(c *talk) {
			c.connect()
			bad := c.dev.wr(1, verbs.OpSend)
			bad.SGL[0].LKey++
			c.dev.post(bad)
			c.dev.done()
			c.dev.qp, c.peer.qp = c.dev.newQP(nil), c.peer.newQP(nil)
			c.connect()
			_ = must.Get(c.dev.qp.PostRecv([]verbs.RecvWR{{WRID: 2, SGL: bad.SGL}}))(c)
			c.peer.post(c.peer.wr(3, verbs.OpSend))
			c.dev.done()
			srq := c.withSRQ()
			c.peer.qp = c.peer.newQP(nil)
			c.connect()
			_ = must.Get(srq.PostRecv([]verbs.RecvWR{{WRID: 4, SGL: bad.SGL}}))(c)
			c.peer.post(c.peer.wr(5, verbs.OpSend))
			c.dev.done()
		},
		sound:     "1 LOC_PROT_ERR 0B; 2 LOC_PROT_ERR 0B; 4 LOC_PROT_ERR 0B",
		defective: "1 LOC_PROT_ERR 0B; 2 LOC_QP_OP_ERR 0B; 4 LOC_QP_OP_ERR 0B",
	},
	"RdAtomicRoundsUp": {
		talk: func(c *talk) {
			c.connect()
			a := verbs.QPAttr{State: verbs.QPStateSQD}
			must.Do(c, c.dev.qp.Modify(a, verbs.QPAttrState))
			a.MaxRdAtomic, a.MaxDestRdAtomic = 3, 5
			must.Do(c, c.dev.qp.Modify(a, verbs.QPAttrState|verbs.QPAttrMaxQPRdAtomic|verbs.QPAttrMaxDestRdAtomic))
			a = must.Get(c.dev.qp.Query())(c)
			c.note("%d %d", a.MaxRdAtomic, a.MaxDestRdAtomic)
			a.MaxRdAtomic = 255
			c.tried(c.dev.qp.Modify(a, verbs.QPAttrState|verbs.QPAttrMaxQPRdAtomic))
		},
		sound:     "3 5; refused",
		defective: "4 8; refused",
	},
	"RefusedWRStays": {
		talk: func(c *talk) {
			c.dev.send(c.dev.wr(1, verbs.OpRDMAWrite))
			c.connect()
			c.proc.Sleep(time.Second) // until it is retransmitted: the peer was not ready
			c.dev.done()
			c.dev.qp, c.peer.qp = c.dev.newQP(nil), c.peer.newQP(nil)
			c.dev.send(c.dev.wr(2, verbs.OpRDMAWrite))
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
			c.connect()
			c.dev.done()
		},
		sound:     "0 invalid; 0 invalid",
		defective: "0 invalid; 1 SUCCESS 0B; 0 invalid",
	},
	"SQNeverDrains": {
		talk: func(c *talk) {
			c.connect()
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: true}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
			c.note("%v", must.Get(c.dev.qp.Query())(c).SQDraining)
			c.dev.events()
		},
		sound:     "false; SQ_DRAINED",
		defective: "true",
	},
	"NoQPEvents": {
		talk: func(c *talk) {
			c.connect()
			bad := c.peer.wr(1, verbs.OpRDMAWrite)
			bad.Remote.RKey++
			c.peer.post(bad)
			c.dev.events()
		},
		sound:     "QP_ACCESS_ERR",
		defective: "",
	},
	"NoLastWQEEvent": {
		talk: func(c *talk) {
			c.withSRQ()
			c.connect()
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			c.dev.events()
		},
		sound:     "QP_LAST_WQE_REACHED",
		defective: "",
	},
	"ValuesUnchecked": {
		talk: func(c *talk) {
			c.tried(c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, PKeyIndex: 9}, toInit))
			c.dev.qp = c.dev.newQP(nil)
			c.connect()
			c.tried(c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, MinRNRTimer: 33}, verbs.QPAttrState|verbs.QPAttrMinRNRTimer))
			c.note("%d", must.Get(c.dev.qp.Query())(c).MinRNRTimer)
		},
		sound:     "refused; refused; 12",
		defective: "taken; taken; 1",
	},
	"RTRIgnored": {
		talk: func(c *talk) {
			c.tried(c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState))
			c.dev.state()
		},
		sound:     "refused; RESET",
		defective: "taken; RESET",
	},
	"InvalidateUnreported": {
		talk: func(c *talk) {
			c.connect()
			w := must.Get(c.dev.pd.AllocMW(verbs.MWType2))(c)
			key := verbs.NextRKey(w.RKey())
			c.dev.post(c.dev.bind(1, w, key))
			c.dev.recv(2)
			c.proc.Sleep(time.Millisecond)
			inv := c.peer.wr(3, verbs.OpSendInv)
			inv.InvalidateRKey = key
			c.peer.post(inv)
			c.dev.done()
		},
		sound:     "1 SUCCESS 0B; 2 SUCCESS 8B; invalidated",
		defective: "1 SUCCESS 0B; 2 SUCCESS 8B",
	},
}

// events notes the asynchronous events of the next millisecond.
func (s *side) events() {
	s.t.Helper()
	for {
		e, err := s.d.WaitAsync(time.Millisecond)
		if err != nil {
			return
		}
		s.t.note("%s", strings.TrimPrefix(e.Type.String(), "IBV_EVENT_"))
	}
}
