package engine

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// feed gives the connection data, raw or as ULPDUs in valid FPDUs, in pieces that seed decides.
func (b *stateRig) feed(data []byte, framed bool, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	data = bytes.ReplaceAll(data, []byte{secretByte}, []byte{0}) // only the NIC sends them
	if framed {
		data = b.frame(data)
	}
	for len(data) > 0 && !b.reset[0] {
		n := min(len(data), 1+rng.IntN(900)>>rng.IntN(9))
		b.give(0, data[:n])
		data = data[n:]
		if rng.IntN(4) == 0 {
			b.maxWrite = 1 + rng.IntN(200)
			b.write(0)
			b.maxWrite = 0
		}
		b.check()
	}
}

// frame makes FPDUs of data: an octet with the length of the next ULPDU, then the ULPDU.
func (b *stateRig) frame(data []byte) (stream []byte) {
	for len(data) > 0 {
		n := min(int(data[0]), len(data)-1)
		stream = b.framer.Append(stream, data[1:1+n])
		data = data[1+n:]
	}
	return stream
}

// chunks appends ULPDUs in the format of frame.
func chunks(segs ...wire.Segment) (b []byte) {
	for _, g := range segs {
		u := g.Append(nil)
		b = append(append(b, byte(len(u))), u...)
	}
	return b
}

// validInput returns input that a conforming peer might send. Keys are the same in every rig.
func validInput(b *stateRig) (all [][]byte) {
	read := segment(wire.OpReadRequest, 1, nil)
	read.ReadRequest = wire.ReadRequest{Size: 300, SrcSTag: wire.STag(b.open.Key), SrcTO: b.open.Addr}
	beyond := read
	beyond.ReadRequest.SrcTO += 400
	atomic := segment(wire.OpAtomicRequest, 2, nil)
	atomic.AtomicRequest = wire.AtomicRequest{Op: wire.AtomicFetchAdd, STag: wire.STag(b.open.Key), TO: b.open.Addr + 8, AddSwap: 5}
	answer := write(b.open.Key, b.open.Addr+4, []byte("rest"))
	answer.Control = wire.NewControl(wire.OpReadResponse, true)
	term := segment(wire.OpTerminate, 1, nil)
	term.Terminate.Error = wire.TermUntaggedNoBuffer
	blames := term
	blames.Terminate.HasLength, blames.Terminate.HasDDP = true, true
	blames.Terminate.DDP = segment(wire.OpAtomicRequest, 2, nil).Header
	found := segment(wire.OpAtomicResponse, 1, nil)
	found.AtomicResponse.RequestID = 2
	invalidates := segment(wire.OpSendInv, 1, []byte("bye"))
	invalidates.Untagged.Invalidate = wire.STag(b.open.Key)
	long := read
	long.Payload = []byte("more than there can be")
	aside := atomic
	aside.Untagged.MSN, aside.AtomicRequest.TO = 1, b.open.Addr+4
	for _, segs := range [][]wire.Segment{
		{segment(wire.OpSend, 1, []byte("one")), segment(wire.OpSendSE, 2, []byte("two")), segment(wire.OpImmediate, 3, nil)},
		{write(b.open.Key, b.open.Addr, bytes.Repeat([]byte("w"), 200)), segment(wire.OpImmediateSE, 1, nil)},
		{write(b.open.Key, b.open.Addr+openLen-4, []byte("over the end"))},
		{write(b.open.Key, b.open.Addr-4, []byte("before it"))},
		{read, atomic},
		{beyond},
		{answer, found, answer},
		{term, segment(wire.OpSend, 1, nil)},
		{blames},
		{invalidates},
		{long},
		{aside},
	} {
		all = append(all, chunks(segs...))
	}
	return all
}

// FuzzStates: in every state, any input is dropped, answered with a Terminate or ends the
// connection. No memory is accessed without rights, and all posted requests complete once.
func FuzzStates(f *testing.F) {
	rig := newStateRig(f, true)
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200)
	for i := range inputStates {
		for k, exchange := range validInput(rig) {
			f.Add(uint8(i), uint8(2+k&1), uint64(k), exchange)
		}
		for k := range noise {
			noise[k] = byte(rng.Uint32())
		}
		for how := range uint8(8) {
			f.Add(uint8(i), how, uint64(how), slices.Clone(noise))
		}
		f.Add(uint8(i), uint8(0), uint64(i), rig.startup(false))
		f.Add(uint8(i), uint8(1), uint64(i), append(rig.startup(true), rig.frame(validInput(rig)[0])...))
	}
	f.Fuzz(func(t *testing.T, state, how uint8, seed uint64, data []byte) {
		s := &inputStates[int(state)%len(inputStates)]
		b := newStateRig(t, how&1 == 0)
		s.reach(b)
		if b.c.State() != s.want {
			t.Fatalf("%s: the connection is %v: %v", s.name, b.c.State(), b.c.Err())
		}
		b.check()
		b.feed(data, how&2 != 0, seed)
		b.finish(how&4 != 0)
	})
}
