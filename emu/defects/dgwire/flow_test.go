package dgwire

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

// flowDefects are those of RD.
var flowDefects = map[string]defectCase{
	"StartFlagOnce": {
		talk: func(r *rig) {
			r.out(data(0, wire.FlagStart))
			r.out(data(0, wire.FlagStart))
			r.out(with(data(0, wire.FlagStart), epochOf(2)))
		},
		sound:     "sent rd seq 0 start of life 0 Send 0.1+0 4B; sent rd seq 0 start of life 0 Send 0.1+0 4B; sent rd seq 0 start of life 0 Send 0.1+0 4B",
		defective: "sent rd seq 0 start of life 0 Send 0.1+0 4B; sent rd seq 0 Send 0.1+0 4B; sent rd seq 0 start of life 0 Send 0.1+0 4B",
	},
	"ChallengeIgnored": {
		talk:      func(r *rig) { r.in(challenge(1)); r.in(refusal(1)) },
		sound:     "got challenge of life 1; got refusal 1",
		defective: "got refusal 1",
	},
	"RefusalIgnored": {
		talk:      func(r *rig) { r.in(challenge(1)); r.in(refusal(1)) },
		sound:     "got challenge of life 1; got refusal 1",
		defective: "got challenge of life 1",
	},
	"IncarnationsIgnored": {
		talk: func(r *rig) {
			r.in(challenge(5))
			r.in(challenge(6))
			r.in(with(data(0, wire.FlagStart), func(k *wire.Packet) { k.Data.Incarnation = 7 }))
		},
		sound:     "got challenge of life 5; got challenge of life 6; got rd seq 0 start of life 7 Send 0.1+0 4B",
		defective: "got challenge of life 1; got challenge of life 1; got rd seq 0 start of life 1 Send 0.1+0 4B",
	},
	"UnknownFlowSilent": {
		talk:      func(r *rig) { r.out(refusal(wire.ReasonUnknown)); r.out(refusal(wire.ReasonState)) },
		sound:     "sent refusal 1; sent refusal 3",
		defective: "sent refusal 3",
	},
	"RefusesEverything": {
		talk: func(r *rig) {
			r.in(ack(1, 0))
			r.in(challenge(1))
			r.in(refusal(2))
			r.in(data(0))
			r.hear()
			r.out(data(0))
			r.in(ack(1, 0))
			r.hear()
		},
		sound: "got rd ack 1/[]; got challenge of life 1; got refusal 2; got rd seq 0 Send 0.1+0 4B; sent rd seq 0 Send 0.1+0 4B; got rd ack 1/[]",
		defective: "got rd ack 1/[]; got challenge of life 1; got refusal 2; got rd seq 0 Send 0.1+0 4B; sent refusal 1; sent refusal 1; sent refusal 1; " +
			"sent rd seq 0 Send 0.1+0 4B; got rd ack 1/[]",
	},
	"AckRidesStale": {
		talk: func(r *rig) {
			riding := func(seq, next wire.Seq) wire.Packet {
				return with(data(seq, wire.FlagAck), func(k *wire.Packet) { k.Ack.Next = next })
			}
			r.out(riding(0, 3))
			r.out(riding(1, 4))
			r.out(ack(5, 6))
			r.out(riding(2, 9))
		},
		sound: "sent rd ack 3/[] seq 0 Send 0.1+0 4B; sent rd ack 4/[] seq 1 Send 0.1+0 4B; sent rd ack 5/[6]; " +
			"sent rd ack 9/[] seq 2 Send 0.1+0 4B",
		defective: "sent rd ack 0/[] seq 0 Send 0.1+0 4B; sent rd ack 3/[] seq 1 Send 0.1+0 4B; sent rd ack 5/[6]; " +
			"sent rd ack 5/[6] seq 2 Send 0.1+0 4B",
	},
	"NeverAsksNow": {
		talk:      func(r *rig) { r.out(data(0, wire.FlagAckNow)) },
		sound:     "sent rd seq 0 now Send 0.1+0 4B",
		defective: "sent rd seq 0 Send 0.1+0 4B",
	},
	"GhostAckTaken": {
		talk: func(r *rig) {
			r.out(data(0))
			r.out(data(1))
			r.out(data(2))
			r.in(ack(9, 1))
			r.in(ack(0, 0xff))
			r.in(with(ack(9, 0), func(k *wire.Packet) { k.Ack.Epoch++ }))
		},
		sound: "sent rd seq 0 Send 0.1+0 4B; sent rd seq 1 Send 0.1+0 4B; sent rd seq 2 Send 0.1+0 4B; " +
			"got rd ack 9/[1]; got rd ack 0/[ff]; got rd ack 9/[]",
		defective: "sent rd seq 0 Send 0.1+0 4B; sent rd seq 1 Send 0.1+0 4B; sent rd seq 2 Send 0.1+0 4B; " +
			"got rd ack 3/[]; got rd ack 0/[3]; got rd ack 9/[]",
	},
	"RepeatsUnheeded": {
		talk: func(r *rig) {
			r.in(with(ack(1, 0), flagged(wire.FlagDuplicate)))
			r.out(with(ack(1, 0), flagged(wire.FlagDuplicate)))
		},
		sound:     "got rd ack 1/[] repeats; sent rd ack 1/[] repeats",
		defective: "got rd ack 1/[]; sent rd ack 1/[] repeats",
	},
	"MarksIgnored": {
		talk: func(r *rig) {
			r.in(with(ack(1, 0), flagged(wire.FlagMarked)))
			r.in(data(0), class(3))
			r.out(with(ack(1, 0), flagged(wire.FlagMarked)))
			r.out(data(0), class(0x4a))
			r.out(ud(send(1, 0, 4, true)), class(2))
		},
		sound: "got rd ack 1/[] marked; got rd seq 0 Send 0.1+0 4B class 0x3; sent rd ack 1/[] marked; " +
			"sent rd seq 0 Send 0.1+0 4B class 0x4a; sent ud Send 0.1+0 4B class 0x2",
		defective: "got rd ack 1/[]; got rd seq 0 Send 0.1+0 4B; sent rd ack 1/[]; sent rd seq 0 Send 0.1+0 4B class 0x48; sent ud Send 0.1+0 4B class 0x2",
	},
	"NumbersGoOn": {
		talk: func(r *rig) {
			r.out(rdPacket(wire.FlagData, 0, send(1, 0, 4, true)))
			r.out(rdPacket(wire.FlagData, 1, send(2, 0, 4, true)))
			r.out(with(rdPacket(wire.FlagData, 0, send(1, 0, 4, true)), epochOf(2)))
			r.out(with(rdPacket(wire.FlagData, 0, send(1, 0, 4, true)), epochOf(3)))
		},
		sound:     "sent rd seq 0 Send 0.1+0 4B; sent rd seq 1 Send 0.2+0 4B; sent rd seq 0 Send 0.1+0 4B; sent rd seq 0 Send 0.1+0 4B",
		defective: "sent rd seq 0 Send 0.1+0 4B; sent rd seq 1 Send 0.2+0 4B; sent rd seq 0 Send 0.3+0 4B; sent rd seq 0 Send 0.4+0 4B",
	},
}

func epochOf(e wire.Epoch) func(*wire.Packet)   { return func(k *wire.Packet) { k.Data.Epoch = e } }
func flagged(f wire.Flags) func(k *wire.Packet) { return func(k *wire.Packet) { k.Flags |= f } }
