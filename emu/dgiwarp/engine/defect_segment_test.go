package engine

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// bend has f change the last segments of y's messages of a kind.
func (c *duo) bend(op ddp.Opcode, f func(segment []byte)) {
	const last, opcode = 0x40, 0x0f
	see := c.see
	c.see = func(d *link.Datagram, k *wire.Packet) bool {
		if u := k.ULPDU; d.Src.Addr() == c.y.h.addr && len(u) > 2 && u[0]&last != 0 && ddp.Opcode(u[1]&opcode) == op {
			tamper(d, k, f)
		}
		return see(d, k)
	}
}

// ended is how x's requests have, and what became of x.
func (c *duo) ended() string { return fmt.Sprint(c.rest(c.x, time.Second), " ", c.x.State()) }

// segmentDefects are about checks that are made, but not everywhere. Offsets are
// those of DDP headers.
var segmentDefects = map[string]defectCase{
	"SecondSegmentOffset": {
		reliable: true,
		talk: func(c *duo) string {
			c.bend(ddp.OpSend, func(u []byte) { u[17] += 4 })
			c.x.recv(7, 0, 8000)
			c.y.send(c.x, 1, 3000)
			return c.ended()
		},
		sound: "7:WR_FLUSH_ERR IBV_QPS_ERR", defective: "7:3040B IBV_QPS_RTS",
	},
	"SecondSegmentNumber": {
		reliable: true,
		talk: func(c *duo) string {
			c.bend(ddp.OpSend, func(u []byte) { u[13]++ })
			c.x.recv(7, 0, 8000)
			c.y.send(c.x, 1, 3000)
			return c.ended()
		},
		sound: "7:WR_FLUSH_ERR IBV_QPS_ERR", defective: "7:3040B IBV_QPS_RTS",
	},
	"SecondSegmentRights": {
		reliable: true,
		talk: func(c *duo) string {
			shut := make(nic.Bytes, 1<<14)
			mr, err := c.x.h.nic.RegMR(c.x.h.pd, shut, c.x.h.mr.Addr, verbs.AccessLocalWrite)
			if err != nil {
				return err.Error()
			}
			c.bend(ddp.OpWrite, func(u []byte) {
				copy(u[2:], []byte{byte(mr.Key >> 24), byte(mr.Key >> 16), byte(mr.Key >> 8), byte(mr.Key)})
			})
			c.y.write(0, 3000, 1)
			c.y.post(c.x, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: c.y.sge(0, 3000), Remote: remote(c.x, 0)})
			state := c.ended()
			return fmt.Sprint(state, " ", shut[2999] != 0)
		},
		sound: " IBV_QPS_ERR false", defective: " IBV_QPS_RTS true",
	},
	"AnswerNumberUnchecked": {
		reliable: true,
		talk: func(c *duo) string {
			c.bend(ddp.OpAtomicResponse, func(u []byte) { u[13]++ })
			c.x.post(c.y, verbs.SendWR{WRID: 1, Opcode: verbs.OpAtomicFetchAdd, SGL: c.x.sge(0, 8), Remote: remote(c.y, 0)})
			return c.ended()
		},
		sound: "1:WR_FLUSH_ERR IBV_QPS_ERR", defective: "1:8B IBV_QPS_RTS",
	},
	"TaggedVersionUnchecked": {
		reliable: true,
		talk: func(c *duo) string {
			c.bend(ddp.OpReadResponse, func(u []byte) { u[1] ^= 0xc0 })
			c.x.post(c.y, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: c.x.sge(0, 8), Remote: remote(c.y, 0)})
			return c.ended()
		},
		sound: "1:WR_FLUSH_ERR IBV_QPS_ERR", defective: "1:8B IBV_QPS_RTS",
	},
	"TaggedVersionUnchecked on UD": {
		talk: func(c *duo) string {
			u := c.taggedSegment(ddp.OpWrite, 0, []byte("ab"), true)
			u[1] ^= 0xc0
			c.udp(u)
			return c.ended()
		},
		sound: " IBV_QPS_ERR", defective: " IBV_QPS_RTS",
	},
	"ReadResponseDDPVersion": {
		reliable: true,
		talk: func(c *duo) string {
			c.bend(ddp.OpReadResponse, func(u []byte) { u[0] ^= 3 })
			c.x.post(c.y, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: c.x.sge(0, 8), Remote: remote(c.y, 0)})
			return c.ended()
		},
		sound: "1:WR_FLUSH_ERR IBV_QPS_ERR", defective: "1:8B IBV_QPS_RTS",
	},
	"EmptySendKeepsKey": {
		reliable: true,
		talk: func(c *duo) string {
			n := c.x.h.nic
			mr, err := n.RegMR(c.x.h.pd, make(nic.Bytes, 8), 0, verbs.AccessMWBind)
			if err != nil {
				return err.Error()
			}
			w, err := n.AllocMW(c.x.h.pd, verbs.MWType2)
			if err == nil {
				err = n.Mem.Bind(w, nic.Bind{Region: mr, Addr: mr.Addr, Len: 8, Access: verbs.AccessRemoteRead, Key: w.Key, PD: c.x.h.pd, QPN: c.x.num})
			}
			if err != nil {
				return err.Error()
			}
			c.x.recv(7, 0, 100)
			c.y.post(c.x, verbs.SendWR{WRID: 1, Opcode: verbs.OpSendInv, InvalidateRKey: verbs.RKey(w.Key)})
			return fmt.Sprint(c.ended(), " ", w.Bound())
		},
		sound: "7:40B IBV_QPS_RTS false", defective: "7:40B IBV_QPS_RTS true",
	},
}
