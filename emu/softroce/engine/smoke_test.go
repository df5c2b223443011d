package engine

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

func TestAllRCOperationsTransferData(t *testing.T) {
	net, a, b, qa, qb := rcPair(t, nil)
	fill(a.mem[:5000], 1)
	b.recv(qb, 1, b.sge(0, 1000), b.sge(1000, 4000))
	b.recv(qb, 2, b.sge(6000, 10))
	a.send(qa, 0, verbs.SendWR{WRID: 10, Opcode: verbs.OpSendImm, Imm: 0x0a0b0c0d, Flags: verbs.SendSignaled, SGL: []verbs.SGE{a.sge(0, 2500), a.sge(2500, 2500)}})
	a.send(qa, 0, verbs.SendWR{WRID: 11, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, Remote: b.remote(10000), SGL: []verbs.SGE{a.sge(0, 5000)}})
	a.send(qa, 0, verbs.SendWR{WRID: 12, Opcode: verbs.OpRDMAWriteImm, Flags: verbs.SendSignaled, Imm: 5, Remote: b.remote(20000), SGL: []verbs.SGE{a.sge(0, 3)}})
	a.send(qa, 0, verbs.SendWR{WRID: 13, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, Remote: b.remote(10000), SGL: []verbs.SGE{a.sge(30000, 5000)}})
	b.mem[40000] = 41
	a.send(qa, 0, verbs.SendWR{WRID: 14, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, Remote: b.remote(40000), Atomic: verbs.Atomic{CompareAdd: 1}, SGL: []verbs.SGE{a.sge(50000, 8)}})
	a.send(qa, 0, verbs.SendWR{WRID: 15, Opcode: verbs.OpAtomicCmpAndSwp, Flags: verbs.SendSignaled, Remote: b.remote(40000), Atomic: verbs.Atomic{CompareAdd: 42, Swap: 7}, SGL: []verbs.SGE{a.sge(50008, 8)}})
	net.run(1e9)
	for i, wc := range a.poll() {
		if wc.Status != verbs.WCSuccess || wc.WRID != uint64(10+i) {
			t.Fatalf("completion %d: %+v", i, wc)
		}
	}
	got := b.poll()
	if len(got) != 2 || got[0].ByteLen != 5000 || got[0].Imm != 0x0a0b0c0d || got[1].ByteLen != 3 || got[1].Opcode != verbs.WCOpRecvRDMAWithImm {
		t.Fatalf("receives: %+v", got)
	}
	if !bytes.Equal(b.mem[:5000], a.mem[:5000]) || !bytes.Equal(b.mem[10000:15000], a.mem[:5000]) || !bytes.Equal(a.mem[30000:35000], a.mem[:5000]) {
		t.Fatal("data differ")
	}
	if a.mem[50000] != 41 || a.mem[50008] != 42 || b.mem[40000] != 7 {
		t.Fatal("atomics differ", a.mem[50000], a.mem[50008], b.mem[40000])
	}
}
