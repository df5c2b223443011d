package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// ends notes what a program learns of the end of a connection.
func (k *tester) ends() string {
	return fmt.Sprintf("%v %v %v %q %q", k.events(), k.qp.State(), k.c.State(), poll(k.sendCQ), poll(k.recvCQ))
}

// moreDefectCases are those of defects that siw does not have.
var moreDefectCases = map[string]defectCase{
	"EndUnreported": {
		talk: func(t *testing.T, h *host) string {
			k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
			r, _ := h.region(8, allAccess)
			h.recv(1)
			h.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
			k.hear()
			k.say(segment(wire.OpTerminate, 1, nil))
			k.hear()
			k.c.InputEOF(0)
			k.hear()
			h.send(verbs.SendWR{WRID: 3, Opcode: verbs.OpSend}) // where nobody is any more
			return k.ends()
		},
		sound:     `[IBV_EVENT_QP_FATAL] IBV_QPS_ERR closed ["2 WR_FLUSH_ERR" "3 WR_FLUSH_ERR"] ["1 WR_FLUSH_ERR"]`,
		defective: `[] IBV_QPS_RTS established [] []`,
	},
	"FlushForgets": {
		talk: func(t *testing.T, h *host) string {
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			h.recv(1)
			h.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend})
			k.c.Failed(0, link.ErrReset)
			h.recv(3)
			h.send(verbs.SendWR{WRID: 4, Opcode: verbs.OpSend})
			return k.ends()
		},
		sound:     `[IBV_EVENT_QP_FATAL] IBV_QPS_ERR closed ["2 WR_FLUSH_ERR" "4 WR_FLUSH_ERR"] ["1 WR_FLUSH_ERR" "3 WR_FLUSH_ERR"]`,
		defective: `[IBV_EVENT_QP_FATAL] IBV_QPS_ERR closed [] []`,
	},
	"DisconnectDropsQueue": {
		talk: func(t *testing.T, h *host) string {
			k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
			h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
			k.c.Disconnect(0)
			return fmt.Sprintf("%d segments, end %v, %q", len(k.hear()), k.fin[0], poll(h.sendCQ))
		},
		sound:     `1 segments, end true, ["1"]`,
		defective: `0 segments, end true, ["1 WR_FLUSH_ERR"]`,
	},
	"OwnDepthsReported": {
		talk: func(t *testing.T, h *host) string {
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			peer := k.c.Peer()
			k = asInitiator(t, newHost(t, func(cfg *Config, _ *QPConfig) { cfg.Defects = h.nic.cfg.Defects }), ConnParam{IRD: 3, ORD: 2}, crcEnhanced)
			other := k.c.Peer()
			return fmt.Sprint(peer.PeerIRD, peer.PeerORD, other.PeerIRD, other.PeerORD)
		},
		sound:     `4 4 4 4`,
		defective: `128 128 3 2`,
	},
	"CQOverrunSpreads": {
		talk: func(t *testing.T, h *host) string {
			asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			tiny := h.cq(1)
			other := h.newQP(QPConfig{Type: verbs.QPTypeRC, PD: h.pd, SendCQ: h.sendCQ, RecvCQ: tiny, Caps: verbs.QPCaps{MaxRecvWR: 4}})
			k := asResponder(t, &host{t: t, nic: h.nic, pd: h.pd, qp: other}, crcEnhanced, ConnParam{})
			for i := range wire.MSN(2) {
				if err := other.PostRecv(&verbs.RecvWR{}); err != nil {
					t.Fatal(err)
				}
				k.say(segment(wire.OpSend, i+1, nil))
			}
			return fmt.Sprint(other.State(), h.qp.State())
		},
		sound:     `IBV_QPS_SQE IBV_QPS_RTS`,
		defective: `IBV_QPS_SQE IBV_QPS_SQE`,
	},
	"LIFOQueue": {
		talk: func(_ *testing.T, h *host) string {
			wrs := []verbs.SendWR{{WRID: 1}, {WRID: 2}, {WRID: 3}}
			return fmt.Sprint(h.qp.InOrder(wrs)[0].WRID, wrs[0].WRID)
		},
		sound:     `1 1`,
		defective: `3 1`,
	},
	"LengthModulo": {
		talk: func(t *testing.T, h *host) string {
			k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, crcEnhanced)
			r, _ := h.region(8, allAccess)
			long := verbs.SGE{Addr: r.Addr, Length: math.MaxUint32, LKey: verbs.LKey(r.Key)}
			err := h.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{long, sge(r, 0, 5)}}, &Refs{})
			sent := 0
			for _, g := range k.hear() {
				sent += len(g.Payload)
			}
			return fmt.Sprint(err == nil, sent)
		},
		sound:     `false 0`,
		defective: `true 4`,
	},
	"BufferSizeReported": {
		talk: func(t *testing.T, h *host) string {
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			r, _ := h.region(8, allAccess)
			h.recv(1, sge(r, 0, 8))
			k.say(segment(wire.OpSend, 1, []byte("abc")))
			return fmt.Sprint(poll(h.recvCQ))
		},
		sound:     `[1:3]`,
		defective: `[1:8]`,
	},
	"SRQLimitSilent": {
		talk: func(t *testing.T, h *host) string {
			srq, err := h.nic.CreateSRQ(nic.SRQConfig{PD: h.pd, MaxWR: 8, MaxSGE: 1, Limit: 1})
			if err == nil {
				err = srq.PostRecv(&verbs.RecvWR{WRID: 1})
			}
			if err != nil {
				t.Fatal(err)
			}
			h.qp = h.newQP(QPConfig{Type: verbs.QPTypeRC, PD: h.pd, SendCQ: h.sendCQ, RecvCQ: h.recvCQ, SRQ: srq})
			k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
			k.say(segment(wire.OpSend, 1, nil))
			return fmt.Sprint(h.events(), poll(h.recvCQ))
		},
		sound:     `[IBV_EVENT_SRQ_LIMIT_REACHED] [1:0]`,
		defective: `[] [1:0]`,
	},
	"KeysCount": {
		talk: func(_ *testing.T, h *host) string {
			k := h.keys(2)
			return fmt.Sprint(k[1]-k[0] == 0x100)
		},
		sound:     `false`,
		defective: `true`,
	},
	"KeysStride": {
		talk: func(_ *testing.T, h *host) string {
			k := h.keys(5)
			return fmt.Sprint(k[2]-k[0] == k[4]-k[2], k[1]-k[0] == k[2]-k[1])
		},
		sound:     `false false`,
		defective: `true false`,
	},
	"KeysReused": {
		talk: func(t *testing.T, h *host) string {
			r, _ := h.region(8, allAccess)
			if err := h.nic.DeregMR(r); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(h.keys(1)[0]-r.Key == 1)
		},
		sound:     `false`,
		defective: `true`,
	},
	"KeysRepeat": {
		talk: func(t *testing.T, h *host) string {
			again := newHost(t, func(cfg *Config, _ *QPConfig) {
				cfg.Defects, cfg.KeySecret = h.nic.cfg.Defects, [16]byte{0xa, 9, 3}
			})
			return fmt.Sprint(slices.Equal(h.keys(3), again.keys(3)))
		},
		sound:     `false`,
		defective: `true`,
	},
}

// keys registers n regions and returns their keys.
func (h *host) keys(n int) (keys []uint32) {
	for range n {
		r, _ := h.region(8, allAccess)
		keys = append(keys, r.Key)
	}
	return keys
}
