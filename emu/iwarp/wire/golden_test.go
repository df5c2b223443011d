package wire

import (
	"encoding/hex"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(s))(t)
	return b
}

// fpdus are whole FPDUs without markers: sent by siw of Linux 6.12 ("sent"), accepted by it
// ("accepted"), or computed from the layouts of the RFCs. If crc is false, the CRC is off and zero.
var fpdus = []struct {
	name  string
	bytes string
	crc   bool
	want  Segment // without the payload
	load  string  // payload, in hexadecimal
	pad   [3]byte
}{
	{
		"Send, sent", "0022414300000000000000000000000100000000000055c99661b6c047d32f000000006400000000", false,
		Segment{Header: untagged(OpSend, QueueSend, 1)},
		"000055c99661b6c047d32f0000000064",
		[3]byte{},
	},
	{
		"Read Request, sent",
		"002e4141000000000000000100000001000000009de06c00000055e715bdd0100000006447d32f00000055c99661b6c000000000", false,
		Segment{
			Header:      untagged(OpReadRequest, QueueReadRequest, 1),
			ReadRequest: ReadRequest{SinkSTag: 0x9de06c00, SinkTO: 0x55e715bdd010, Size: 100, SrcSTag: 0x47d32f00, SrcTO: 0x55c99661b6c0},
		},
		"",
		[3]byte{},
	},
	{
		"Send of two octets with a stale pad, sent", "00144143000000000000000000000004000000003300004000000000", false,
		Segment{Header: untagged(OpSend, QueueSend, 4)},
		"3300",
		[3]byte{0x00, 0x40},
	},
	{
		"Write, sent", "0012c140971bd300000055f46aead9740200000000000000", false,
		Segment{Header: tagged(OpWrite, 0x971bd300, 0x55f46aead974)},
		"02000000",
		[3]byte{},
	},
	{
		"Send with CRC, accepted", "0022414300000000000000000000000100000000000000000000100011223344000000142171acce", true,
		Segment{Header: untagged(OpSend, QueueSend, 1)},
		"00000000000010001122334400000014",
		[3]byte{},
	},
	{
		"Read Request with CRC, sent",
		"002e414100000000000000010000000100000000f6be8e0000007f7ae8002f90000000141122334400000000000010005c312ab2", true,
		Segment{
			Header:      untagged(OpReadRequest, QueueReadRequest, 1),
			ReadRequest: ReadRequest{SinkSTag: 0xf6be8e00, SinkTO: 0x7f7ae8002f90, Size: 20, SrcSTag: 0x11223344, SrcTO: 0x1000},
		},
		"",
		[3]byte{},
	},
	{
		"Write whose pad is the tail of an older CRC, sent",
		"0023c14055667788000000000000200072646d612d70696e672d303a204142434445464700609a1227e9ba44", true,
		Segment{Header: tagged(OpWrite, 0x55667788, 0x2000)},
		"72646d612d70696e672d303a204142434445464700",
		[3]byte{0x60, 0x9a, 0x12},
	},
	{
		"empty Read Response, sent", "000ec142aaaa555511223344556677887338d788", true,
		Segment{Header: tagged(OpReadResponse, 0xaaaa5555, 0x1122334455667788)},
		"",
		[3]byte{},
	},
	{
		"empty Write, accepted", "000ec14000000001000000000000000000000000", false,
		Segment{Header: tagged(OpWrite, 1, 0)},
		"",
		[3]byte{},
	},
	{
		"Terminate for a CRC error, sent", "00164147000000000000000200000001000000000202000075d367ed", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{Error: TermMPACRC, Order: OrderSiw}},
		"",
		[3]byte{},
	},
	{
		"Terminate for a CRC error by the RFC", "0016414700000000000000020000000100000000200200007fe42585", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{Error: TermMPACRC}},
		"",
		[3]byte{},
	},
	{
		"Terminate for a wrong DDP version, sent", "001641470000000000000002000000010000000021060000ddeabec6", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{Error: TermUntaggedVersion, Order: OrderSiw}},
		"",
		[3]byte{},
	},
	{
		"Terminate for an unexpected opcode, sent", "0016414700000000000000020000000100000000200600006540fb1b", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{Error: TermOpOpcode, Order: OrderSiw}},
		"",
		[3]byte{},
	},
	{
		"Terminate for a wrong queue, sent",
		"002a414700000000000000020000000100000000210103000010414300000000000000010000000100000000b763a245", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{
			Error: TermUntaggedQN, HasLength: true, HasDDP: true, Order: OrderSiw, SegmentLength: 16,
			DDP: untagged(OpSend, 1, 1),
		}},
		"",
		[3]byte{},
	},
	{
		"Terminate for a wrong STag, sent",
		"0026414700000000000000020000000100000000110003000010c140abcdef0000000000000000005bc2725e", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{
			Error: TermTaggedSTag, HasLength: true, HasDDP: true, Order: OrderSiw, SegmentLength: 16,
			DDP: tagged(OpWrite, 0xabcdef00, 0),
		}},
		"",
		[3]byte{},
	},
	{
		"Terminate for a wrong STag by the RFC",
		"00264147000000000000000200000001000000001100c000001ec140abcdef0000000000000000004e8b3050", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{
			Error: TermTaggedSTag, HasLength: true, HasDDP: true, SegmentLength: 30,
			DDP: tagged(OpWrite, 0xabcdef00, 0),
		}},
		"",
		[3]byte{},
	},
	{
		"Terminate of a read, sent",
		"004641470000000000000002000000010000000010000700000041410000000000000001000000100000000000000007" +
			"000000000000010000000010abcdef0000000000000000000343ae4c", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{
			Error: TermProtInvalidSTag, HasLength: true, HasDDP: true, HasRDMAP: true, Order: OrderSiw,
			DDP:  untagged(OpReadRequest, QueueReadRequest, 16), // the size of the read in place of the MSN
			Read: ReadRequest{SinkSTag: 7, SinkTO: 0x100, Size: 16, SrcSTag: 0xabcdef00},
		}},
		"",
		[3]byte{},
	},
	{
		"Terminate of a read by the RFC",
		"00464147000000000000000200000001000000000100e000002e41410000000000000001000000010000000000000007" +
			"000000000000010000000010abcdef000000000000000000d324d859", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{
			Error: TermProtInvalidSTag, HasLength: true, HasDDP: true, HasRDMAP: true, SegmentLength: 46,
			DDP:  untagged(OpReadRequest, QueueReadRequest, 1),
			Read: ReadRequest{SinkSTag: 7, SinkTO: 0x100, Size: 16, SrcSTag: 0xabcdef00},
		}},
		"",
		[3]byte{},
	},
	{
		"Terminate for too many reads, sent",
		"002a4147000000000000000200000001000000002007030000004141000000000000000100000001000000000dadc3cb", true,
		Segment{Header: untagged(OpTerminate, QueueTerminate, 1), Terminate: Terminate{
			Error: TermOpStream, HasLength: true, HasDDP: true, Order: OrderSiw,
			DDP: untagged(OpReadRequest, QueueReadRequest, 1),
		}},
		"",
		[3]byte{},
	},
	{
		"Immediate Data", "001a414800000000000000000000000100000000010203040506070806c22805", true,
		Segment{Header: untagged(OpImmediate, QueueSend, 1), Immediate: Immediate{1, 2, 3, 4, 5, 6, 7, 8}},
		"",
		[3]byte{},
	},
	{
		"Atomic Request, FetchAdd",
		"0046414a000000000000000100000001000000000000000000000011a1b2c30000000000000010000000000000000005" +
			"00000000000000000000000000000000ffffffffffffffffd9bb2792", true,
		Segment{
			Header: untagged(OpAtomicRequest, QueueReadRequest, 1),
			AtomicRequest: AtomicRequest{
				Op: AtomicFetchAdd, RequestID: 0x11, STag: 0xa1b2c300, TO: 0x1000, AddSwap: 5, CompareMask: ^uint64(0),
			},
		},
		"",
		[3]byte{},
	},
	{
		"Atomic Request, CmpSwap",
		"0046414a000000000000000100000002000000000000000200000012a1b2c3000000000000001008000000000000dead" +
			"ffffffffffffffff000000000000beefffffffffffffffff158daa49", true,
		Segment{
			Header: untagged(OpAtomicRequest, QueueReadRequest, 2),
			AtomicRequest: AtomicRequest{
				Op: AtomicCompareSwap, RequestID: 0x12, STag: 0xa1b2c300, TO: 0x1008,
				AddSwap: 0xdead, AddSwapMask: ^uint64(0), Compare: 0xbeef, CompareMask: ^uint64(0),
			},
		},
		"",
		[3]byte{},
	},
	{
		"Atomic Response", "001e414b0000000000000003000000010000000000000011000000000000002ac093aabd", true,
		Segment{Header: untagged(OpAtomicResponse, QueueAtomicResponse, 1), AtomicResponse: AtomicResponse{RequestID: 0x11, Original: 42}},
		"",
		[3]byte{},
	},
}

func untagged(op Opcode, qn QN, msn MSN) Header {
	return Header{Control: NewControl(op, true), Untagged: Untagged{QN: qn, MSN: msn}}
}

func tagged(op Opcode, stag STag, to uint64) Header {
	return Header{Control: NewControl(op, true), Tagged: Tagged{STag: stag, TO: to}}
}
