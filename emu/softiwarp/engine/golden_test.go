package engine

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Octets that soft-iWARP sent in an rping of 100 octets, without CRCs.
const (
	rpingRequest  = "4d504120494420526571204672616d651002000400010001"
	rpingReply    = "4d504120494420526570204672616d651002000400010001"
	rpingSend     = "0022414300000000000000000000000100000000000055c99661b6c047d32f000000006400000000"
	rpingRead     = "002e4141000000000000000100000001000000009de06c00000055e715bdd0100000006447d32f00000055c99661b6c000000000"
	rpingResponse = "0072c1429de06c00000055e715bdd01072646d612d70696e672d303a204142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a4142434445464748494a4b4c4d4e4f505152535455565758595a5b5c0000000000"
	rpingWrite    = "0072c140f13a5300000055c99661b01072646d612d70696e672d303a204142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a4142434445464748494a4b4c4d4e4f505152535455565758595a5b5c0000000000"
)

// stagHex returns a key in hex, in network byte order.
func stagHex(key uint32) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint32(nil, key))
}

func wantOctets(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if hex.EncodeToString(got) != want {
		t.Errorf("%s:\n%x\nwant:\n%s", what, got, want)
	}
}

func TestGoldenRpingClient(t *testing.T) {
	h := newHost(t, noCRC)
	src, text := h.regionAt(16, 0x55c99661b000, allAccess)
	data, mem := h.regionAt(100, 0x55c99661b6c0, allAccess)
	copy(mem, unhex(t, rpingResponse[32:232]))
	c := must.Get(h.nic.Connect(h.qp, ConnParam{IRD: 1, ORD: 1}))(t)
	p := newPipe(t, c, nil)
	wantOctets(t, "Request", p.take(0), rpingRequest)
	p.give(0, unhex(t, rpingReply))
	if c.State() != Established {
		t.Fatalf("%v: %v", c.State(), c.Err())
	}
	copy(text, unhex(t, rpingSend[40:72]))
	h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: []verbs.SGE{sge(src, 0, 16)}})
	wantOctets(t, "Send", p.take(0), rpingSend)
	h.wantSends("1")
	// The peer reads, with this NIC's key instead of soft-iWARP's.
	p.give(0, unhex(t, strings.Replace(rpingRead, "47d32f00", stagHex(data.Key), 1)))
	wantOctets(t, "Read Response", p.take(0), rpingResponse)
}

func TestGoldenRpingServer(t *testing.T) {
	h := newHost(t, noCRC)
	c := h.nic.Incoming()
	p := newPipe(t, nil, c)
	p.give(1, unhex(t, rpingRequest))
	must.Do(t, c.Accept(0, h.qp, ConnParam{IRD: 1, ORD: 1}))
	wantOctets(t, "Reply", p.take(1), rpingReply)
	buf, mem := h.regionAt(16, 0, allAccess)
	sink, got := h.regionAt(100, 0x55e715bdd010, allAccess)
	h.recv(1, sge(buf, 0, 16))
	p.give(1, unhex(t, rpingSend))
	h.wantRecvs("1:16")
	stag, addr := binary.BigEndian.Uint32(mem[8:]), binary.BigEndian.Uint64(mem)
	h.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(sink, 0, 100)}, Remote: verbs.Remote{Addr: addr, RKey: verbs.RKey(stag)}})
	wantOctets(t, "Read Request", p.take(1), strings.Replace(rpingRead, "9de06c00", stagHex(sink.Key), 1))
	h.wantSends()
	p.give(1, unhex(t, strings.Replace(rpingResponse, "9de06c00", stagHex(sink.Key), 1)))
	h.wantSends("2")
	h.send(verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{sge(sink, 0, 100)}, Remote: verbs.Remote{Addr: 0x55c99661b010, RKey: 0xf13a5300}})
	wantOctets(t, "Write", p.take(1), rpingWrite)
	if hex.EncodeToString(got) != rpingResponse[32:232] {
		t.Errorf("read %q", got)
	}
}

func TestGoldenFramesWithCRC(t *testing.T) {
	const enhanced = "50020004" // CRC, enhanced, revision 2, four octets
	for _, c := range []struct {
		name, want string
		do         func(*testing.T, *tester)
	}{
		{"D1", "0016414700000000000000020000000100000000200200007fe42585", func(t *testing.T, k *tester) {
			b := k.framer.Append(nil, segmentBytes(segment(wire.OpSend, 1, nil)))
			b[len(b)-1] ^= 1
			k.give(0, b)
		}},
		{"D2", "00264147000000000000000200000001000000001100c000001ec140abcdef0000000000000000004e8b3050", func(_ *testing.T, k *tester) {
			k.sendSegment(write(0xabcdef00, 0, make([]byte, 16)))
		}},
		{"D3", "00464147000000000000000200000001000000000100e000002e41410000000000000001000000010000000000000007000000000000010000000010abcdef000000000000000000d324d859", func(_ *testing.T, k *tester) {
			g := segment(wire.OpReadRequest, 1, nil)
			g.ReadRequest = wire.ReadRequest{SinkSTag: 7, SinkTO: 0x100, Size: 16, SrcSTag: 0xabcdef00}
			k.sendSegment(g)
		}},
		{"D5c", "001e414b0000000000000003000000010000000000000011000000000000002ac093aabd", func(_ *testing.T, k *tester) {
			r, mem := k.region(8, allAccess)
			mem[0] = 42
			g := segment(wire.OpAtomicRequest, 1, nil)
			g.AtomicRequest = wire.AtomicRequest{RequestID: 0x11, STag: wire.STag(r.Key), TO: r.Addr, AddSwap: 5}
			k.sendSegment(g)
		}},
		{"V16", "000ec142aaaa555511223344556677887338d788", func(t *testing.T, k *tester) {
			k.give(0, unhex(t, "002e414100000000000000010000000100000000aaaa5555112233445566778800000000deadbeef0000000000000077d4fa74d7"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			k := asResponder(t, h, enhanced+"00040004", ConnParam{IRD: 4, ORD: 4})
			c.do(t, k)
			wantOctets(t, c.name, k.take(0), c.want)
		})
	}
	h := newHost(t)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, enhanced+"00040004")
	data, mem := h.region(64, allAccess)
	copy(mem, unhex(t, "000000000000100011223344"+"00000014"))
	h.send(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{sge(data, 0, 16)}})
	wantOctets(t, "T11", k.take(0), "0022414300000000000000000000000100000000000000000000100011223344000000142171acce")
}

func TestGoldenRTR(t *testing.T) {
	// soft-iWARP's Reply requests a Write as RTR.
	h := newHost(t, noCRC, peerToPeer)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, "1002000480048004")
	wantOctets(t, "T17", k.take(0), "000ec14000000001000000000000000000000000")
	if h.SendCQ.Depth() == 0 || len(poll(h.SendCQ)) != 0 {
		t.Error("the RTR has a completion")
	}
}

func segmentBytes(g wire.Segment) []byte { return g.Append(nil) }
