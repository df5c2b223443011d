package dgwire

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
)

// packetDefects are those of packets, numbers and keys.
var packetDefects = map[string]defectCase{
	"PacketsPadded": {
		talk:      func(r *rig) { r.out(ud(send(1, 0, 5, true))); r.out(ud(send(1, 0, 6, true))) },
		sound:     "sent ud Send 0.1+0 5B; sent ud Send 0.1+0 6B",
		defective: "sent ud Send 0.1+0 6B; sent ud Send 0.1+0 6B",
	},
	"CRCMostFirst": {
		talk:      func(r *rig) { r.out(ud(send(1, 0, 4, true))); r.in(ud(send(1, 0, 4, true))) },
		sound:     "sent ud Send 0.1+0 4B; got ud Send 0.1+0 4B",
		defective: "sent ud Send 0.1+0 4B CRC wrong; got ud Send 0.1+0 4B",
	},
	"CRCUnchecked": {
		talk:      func(r *rig) { r.in(ud(send(1, 0, 4, true)), damaged) },
		sound:     "got ud Send 0.1+0 4B CRC wrong",
		defective: "got ud Send 0.1+0 4B",
	},
	"CRCCoversPorts": {
		talk: func(r *rig) {
			r.out(ud(send(1, 0, 4, true)))
			r.in(ud(send(1, 0, 4, true)))
			r.in(ud(send(2, 0, 4, true)), portsCovered)
		},
		sound:     "sent ud Send 0.1+0 4B; got ud Send 0.1+0 4B; got ud Send 0.2+0 4B CRC wrong",
		defective: "sent ud Send 0.1+0 4B CRC wrong; got ud Send 0.1+0 4B CRC wrong; got ud Send 0.2+0 4B",
	},
	"StrangePacketsTaken": {
		talk: func(r *rig) {
			r.in(ud(send(1, 0, 4, true)), first(0x21))
			r.in(ud(send(1, 0, 4, true)), first(0x15))
			r.in(ack(1, 0), trailed(8))
			r.in(ack(1, 0), trailed(9))
			r.in(challenge(1), trailed(4))
			r.in(refusal(1), trailed(1))
			r.in(ud(untagged(ddp.OpReadRequest, ddp.Untagged{QN: 1}, make([]byte, ddp.ReadRequestLen), true)), trailed(2))
			r.in(ud(terminate()), trailed(3))
		},
		sound: "got kind 0 key 0x0 to QP 0x0 (not version 1 of datagram-iWARP); got kind 5 (no such kind of packet); got rd ack 1/[] (too long); " +
			"got rd ack 1/[] (too long); got challenge of life 1 (too long); " +
			"got refusal 1 (too long); got ud RDMA Read Request 1.0+0 30B; got ud Terminate 2.1+0 27B 1100c000",
		defective: "got ud Send 0.1+0 4B; got ud Send 0.1+0 4B; got rd ack 1/[]; got rd ack 1/[] (too long); " +
			"got challenge of life 1; got refusal 1; got ud RDMA Read Request 1.0+0 28B; got ud Terminate 2.1+0 24B 1100c000",
	},
	"ReservedSent": {
		talk:      func(r *rig) { r.out(ack(1, 0)); r.out(refusal(2)) },
		sound:     "sent rd ack 1/[]; sent refusal 2",
		defective: "sent rd ack 1/[] reserved 3 5a5a 5a 000000; sent refusal 2 reserved 3 5a5a 0 5a5a5a",
	},
	"ReservedLookedAt": {
		talk: func(r *rig) {
			r.in(data(0))
			r.in(with(data(1), func(k *wire.Packet) { k.Flags |= 1 }))
			r.in(with(ud(send(1, 0, 4, true)), func(k *wire.Packet) { k.Reserved = 1 }))
			r.in(with(ack(1, 0), func(k *wire.Packet) { k.Ack.Reserved = 1 }))
			r.in(with(refusal(1), func(k *wire.Packet) { k.Refusal.Reserved[2] = 1 }))
		},
		sound: "got rd seq 0 Send 0.1+0 4B; got rd seq 1 reserved 1 0 0 000000 Send 0.1+0 4B; got ud reserved 0 1 0 000000 Send 0.1+0 4B; " +
			"got rd ack 1/[] reserved 0 0 1 000000; got refusal 1 reserved 0 0 0 000001",
		defective: "got rd seq 0 Send 0.1+0 4B",
	},
	"NumberIgnored": {
		talk: func(r *rig) {
			r.in(with(ud(send(1, 0, 4, true)), toward(0x99)))
			r.in(with(ud(send(1, 0, 4, true)), toward(0)))
			r.in(with(ud(send(1, 0, 4, true)), toward(wire.MulticastQP)), toGroup)
		},
		sound:     "got ud to QP 0x99 Send 0.1+0 4B; got ud to QP 0x0 Send 0.1+0 4B; got ud to QP 0xffffff Send 0.1+0 4B",
		defective: "got ud Send 0.1+0 4B; got ud Send 0.1+0 4B; got ud to QP 0xffffff Send 0.1+0 4B",
	},
	"ZeroUnknown": {
		talk:      func(r *rig) { r.in(with(ud(send(1, 0, 4, true)), toward(0))); r.in(ud(send(1, 0, 4, true))) },
		sound:     "got ud to QP 0x0 Send 0.1+0 4B; got ud Send 0.1+0 4B",
		defective: "got ud Send 0.1+0 4B",
	},
	"QueueNumberIgnored": {
		talk: func(r *rig) {
			r.in(ud(untagged(ddp.OpSend, ddp.Untagged{QN: 7, MSN: 1}, nil, true)))
			r.in(rdPacket(wire.FlagData, 0, untagged(ddp.OpReadRequest, ddp.Untagged{QN: 0, MSN: 1}, nil, true)))
		},
		sound:     "got ud Send 7.1+0 0B; got rd seq 0 RDMA Read Request 0.1+0 0B",
		defective: "got ud Send 0.1+0 0B; got rd seq 0 RDMA Read Request 1.1+0 0B",
	},
	"KeysUnused": {
		talk: func(r *rig) {
			r.in(with(ud(send(1, 0, 4, true)), keyOf(17)))
			r.in(with(ud(send(1, 0, 4, true)), func(k *wire.Packet) { k.Key, k.DstQP = 17, wire.MulticastQP }), toGroup)
			r.out(with(data(0, wire.FlagStart), func(k *wire.Packet) { k.Data.SourceKey = testKey }))
		},
		sound: "got ud key 0x11 Send 0.1+0 4B; got ud key 0x11 to QP 0xffffff Send 0.1+0 4B; " +
			"sent rd seq 0 start of life 0 source key 0xcafe Send 0.1+0 4B",
		defective: "got ud Send 0.1+0 4B; got ud to QP 0xffffff Send 0.1+0 4B; sent rd seq 0 start of life 0 key 0x0 Send 0.1+0 4B",
	},
	"KeyOnEverything": {
		talk: func(r *rig) {
			for _, k := range []wire.Packet{ack(1, 0), challenge(1), refusal(1), ud(terminate())} {
				r.in(with(k, keyOf(17)))
				r.in(k)
			}
		},
		sound: "got rd ack 1/[] key 0x11; got rd ack 1/[]; got challenge of life 1 key 0x11; got challenge of life 1; got refusal 1 key 0x11; " +
			"got refusal 1; got ud key 0x11 Terminate 2.1+0 24B 1100c000; got ud Terminate 2.1+0 24B 1100c000",
		defective: "got rd ack 1/[]; got challenge of life 1; got refusal 1; got ud Terminate 2.1+0 24B 1100c000",
	},
}

func toward(qp uint32) func(*wire.Packet) { return func(k *wire.Packet) { k.DstQP = qp } }
func keyOf(key uint32) func(*wire.Packet) { return func(k *wire.Packet) { k.Key = key } }

func toGroup(d *link.Datagram) { d.Dst = netip.MustParseAddrPort("239.0.0.1:65041") }
