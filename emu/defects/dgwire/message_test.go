package dgwire

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
)

// messageDefects are those of messages on UD, and of error messages.
var messageDefects = map[string]defectCase{
	"CutsAtRandom": {
		talk: func(r *rig) {
			r.out(ud(send(1, 0, 9, true)))
			r.out(ud(write(100, 6, true)))
			r.out(ud(record(1, 0, 3)))
			r.out(ud(send(2, 0, 1, true)))
			r.out(data(0))
		},
		sound: "sent ud Send 0.1+0 9B; sent ud RDMA Write at 100 6B; sent ud record 1+0 at 0 3B; sent ud Send 0.2+0 1B; sent rd seq 0 Send 0.1+0 4B",
		defective: "sent ud Send 0.1+0 3B more; sent ud Send 0.1+3 6B; sent ud RDMA Write at 100 2B more; sent ud RDMA Write at 102 4B; " +
			"sent ud record 1+0 at 0 1B more; sent ud record 1+1 at 1 2B; sent ud Send 0.2+0 1B; sent rd seq 0 Send 0.1+0 4B",
	},
	"NumbersByPeer": {
		talk: func(r *rig) {
			other := func(d *link.Datagram) { d.Dst = netip.MustParseAddrPort("10.0.0.8:65041") }
			r.out(ud(send(7, 0, 4, false)))
			r.out(ud(send(7, 4, 4, true)))
			r.out(ud(send(8, 0, 4, true)), other)
			r.out(ud(record(9, 0, 4)))
			r.in(ud(send(5, 0, 4, true)))
			r.in(ud(send(7, 0, 4, true)))
			r.in(ud(record(6, 0, 4)))
		},
		sound: "sent ud Send 0.7+0 4B more; sent ud Send 0.7+4 4B; sent ud Send 0.8+0 4B; sent ud record 9+0 at 0 4B; " +
			"got ud Send 0.5+0 4B; got ud Send 0.7+0 4B; got ud record 6+0 at 0 4B",
		defective: "sent ud Send 0.1+0 4B more; sent ud Send 0.1+4 4B; sent ud Send 0.1+0 4B; sent ud record 2+0 at 0 4B; " +
			"got ud Send 0.5+0 4B; got ud record 6+0 at 0 4B",
	},
	"SegmentsInOrder": {
		talk: func(r *rig) {
			r.in(ud(send(1, 0, 4, false)))
			r.in(ud(send(1, 4, 4, true)))
			r.in(ud(send(2, 4, 4, true)))
			r.in(ud(send(2, 0, 4, false)))
			r.in(ud(write(0, 4, false)))
			r.in(ud(write(8, 4, true)))
			r.in(ud(write(8, 4, false)))
			r.in(ud(write(4, 4, false)))
			r.in(ud(write(0, 4, false)))
		},
		sound: "got ud Send 0.1+0 4B more; got ud Send 0.1+4 4B; got ud Send 0.2+4 4B; got ud Send 0.2+0 4B more; got ud RDMA Write at 0 4B more; " +
			"got ud RDMA Write at 8 4B; got ud RDMA Write at 8 4B more; got ud RDMA Write at 4 4B more; got ud RDMA Write at 0 4B more",
		defective: "got ud Send 0.1+0 4B more; got ud Send 0.1+4 4B; got ud RDMA Write at 0 4B more; got ud RDMA Write at 8 4B more",
	},
	"RecordFieldsSwapped": {
		talk:      func(r *rig) { r.out(ud(record(9, 2, 4))) },
		sound:     "sent ud record 9+2 at 0 4B",
		defective: "sent ud record 2+9 at 0 4B",
	},
	"ErrorWithoutHeader": {
		talk:      func(r *rig) { r.out(ud(terminate())); r.out(rdPacket(0x80, 3, terminate())) },
		sound:     "sent ud Terminate 2.1+0 24B 1100c000; sent rd seq 3 Terminate 2.1+0 24B 1100c000",
		defective: "sent ud Terminate 2.1+0 4B 11000000; sent rd seq 3 Terminate 2.1+0 4B 11000000",
	},
	"ErrorsFlood": {
		talk: func(r *rig) {
			r.out(ud(terminate()))
			r.in(ud(terminate()))
			r.hear()
		},
		sound: "sent ud Terminate 2.1+0 24B 1100c000; got ud Terminate 2.1+0 24B 1100c000",
		defective: "sent ud Terminate 2.1+0 88B 1100c000; sent ud Terminate 2.1+0 88B 1100c000; got ud Terminate 2.1+0 24B 1100c000; " +
			"sent ud Terminate 2.1+0 24B 0206c000",
	},
}
