package iwarpwire

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// atomic asks for an atomic on the first word of the NIC's memory, which is 5, and
// tells what becomes of it.
func (r *rig) atomic(a wire.AtomicRequest) string {
	r.up(false)
	binary.LittleEndian.PutUint64(r.mem, 5)
	a.STag, a.TO = wire.STag(r.region.Key), r.region.Addr
	said := r.say(segmentOf(wire.OpAtomicRequest, 1, nil, func(g *wire.Segment) { g.AtomicRequest = a }))
	return fmt.Sprintf("%s; %#x", said, binary.LittleEndian.Uint64(r.mem))
}

// delivered posts receives, gives the NIC segments, and tells what comes of it.
func (r *rig) delivered(gs ...wire.Segment) string {
	r.up(false)
	r.recv(2)
	return r.say(gs...) + "; " + r.done()
}

var takeTalks = map[string]talk{
	"ReservedBitsChecked": {
		say: func(r *rig) string {
			return r.delivered(segmentOf(wire.OpSend, 1, nil), segmentOf(wire.OpSend, 2, nil, func(g *wire.Segment) { g.Control.DDPReserved = 1 }))
		},
		sound: "; 0:SUCCESS:0 1:SUCCESS:0", defective: "Terminate 0/2/06, end; 0:SUCCESS:0 1:WR_FLUSH_ERR:0",
	},
	"VersionsUnchecked": {
		say: func(r *rig) string {
			return r.delivered(segmentOf(wire.OpSend, 1, nil, func(g *wire.Segment) { g.Control.DDPVersion, g.Control.RDMAPVersion = 2, 3 }))
		},
		sound: "Terminate 1/2/06, end; 0:WR_FLUSH_ERR:0 1:WR_FLUSH_ERR:0", defective: "; 0:SUCCESS:0",
	},
	"UntaggedUnchecked": {
		say: func(r *rig) string {
			return r.delivered(
				segmentOf(wire.OpSend, 7, []byte("ab"), more, func(g *wire.Segment) { g.Untagged.QN = 9 }),
				segmentOf(wire.OpSend, 8, []byte("cd"), func(g *wire.Segment) { g.Untagged.MO = 40 }), segmentOf(wire.OpSend, 3, nil))
		},
		sound: "Terminate 1/2/01, end; 0:WR_FLUSH_ERR:0 1:WR_FLUSH_ERR:0", defective: "; 0:SUCCESS:4 1:SUCCESS:0",
	},
	"OddOffsetRefused": {
		say: func(r *rig) string {
			r.up(false)
			return r.say(segmentOf(wire.OpWrite, 0, []byte("a"), r.into(8)), segmentOf(wire.OpWrite, 0, []byte("a"), r.into(9)))
		},
		sound: "", defective: "Terminate 1/1/01, end",
	},
	"OpcodeMasked": {
		say: func(r *rig) string {
			return r.delivered(segmentOf(13, 0, nil, func(g *wire.Segment) { g.Untagged.MSN = 1 }))
		},
		sound: "Terminate 0/2/06, end; 0:WR_FLUSH_ERR:0 1:WR_FLUSH_ERR:0", defective: "; 0:SUCCESS:0",
	},
	"ReadSize16": {
		say: func(r *rig) string {
			r.up(false)
			return r.say(segmentOf(wire.OpReadRequest, 1, nil, r.read(0, 65536+5)))
		},
		sound: "Terminate 0/1/01, end", defective: "RDMA Read Response 5",
	},
	"EverySendSolicited": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(1)
			r.cq.ReqNotify(true)
			r.say(segmentOf(wire.OpSend, 1, nil))
			return fmt.Sprint(r.nic.CompletionEvents(), " ", r.done())
		},
		sound: "0 0:SUCCESS:0", defective: "1 0:SUCCESS:0",
	},
	"WritesPlacedLate": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(1)
			r.say(segmentOf(wire.OpWrite, 0, []byte("ab"), r.into(0), more), segmentOf(wire.OpWrite, 0, []byte("cd"), r.into(2)), segmentOf(wire.OpSend, 1, nil))
			before := fmt.Sprintf("%s %q", r.done(), r.mem[:4])
			r.wait(time.Millisecond)
			return fmt.Sprintf("%s %q", before, r.mem[:4])
		},
		sound: `0:SUCCESS:0 "abcd" "abcd"`, defective: `0:SUCCESS:0 "\x00\x01\x02\x03" "abcd"`,
	},
	"AddMaskIsAnd": {
		say: func(r *rig) string { return r.atomic(wire.AtomicRequest{AddSwap: 0xff, AddSwapMask: 0x80}) }, sound: "Atomic Response 0 #1; 0x4", defective: "Atomic Response 0 #1; 0x85",
	},
	"MasksSwapped": {
		say: func(r *rig) string {
			return r.atomic(wire.AtomicRequest{Op: wire.AtomicCompareSwap, AddSwap: 0xffff, AddSwapMask: 0xff00, Compare: 5, CompareMask: 0xff})
		},
		sound: "Atomic Response 0 #1; 0xff05", defective: "Atomic Response 0 #1; 0xff",
	},
	"SwapsAlways": {
		say: func(r *rig) string {
			return r.atomic(wire.AtomicRequest{Op: wire.AtomicCompareSwap, AddSwap: 9, AddSwapMask: 0xff, Compare: 4, CompareMask: 0xff})
		},
		sound: "Atomic Response 0 #1; 0x5", defective: "Atomic Response 0 #1; 0x9",
	},
	"AnyAtomicAdds": {
		say: func(r *rig) string { return r.atomic(wire.AtomicRequest{Op: 7, AddSwap: 9}) }, sound: "Terminate 0/2/06, end; 0x5", defective: "Atomic Response 0 #1; 0xe",
	},
	"ImmediateAnyLength": {
		say: func(r *rig) string {
			r.up(false)
			r.recv(2)
			for i, n := range []int{2, 11} {
				g := segmentOf(wire.OpImmediate, wire.MSN(i+1), nil)
				h := g.Header.Append(nil)
				r.conn.Input(0, r.framer.Append(nil, h, make([]byte, n)))
			}
			return r.words() + "; " + r.done()
		},
		sound: "Terminate 0/2/ff, end; 0:WR_FLUSH_ERR:0 1:WR_FLUSH_ERR:0", defective: "; 0:SUCCESS:0 1:SUCCESS:0",
	},
}
