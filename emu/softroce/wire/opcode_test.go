package wire

import (
	"testing"
)

func TestOpcodeNumbers(t *testing.T) {
	for _, tc := range []struct {
		op   Opcode
		want uint8
		name string
	}{
		{MakeOpcode(TransportRC, OpSendFirst), 0x00, "RC SEND_FIRST"},
		{MakeOpcode(TransportRC, OpSendOnly), 0x04, "RC SEND_ONLY"},
		{MakeOpcode(TransportRC, OpWriteFirst), 0x06, "RC WRITE_FIRST"},
		{MakeOpcode(TransportRC, OpWriteOnlyImm), 0x0b, "RC WRITE_ONLY_IMM"},
		{MakeOpcode(TransportRC, OpReadRequest), 0x0c, "RC READ_REQUEST"},
		{MakeOpcode(TransportRC, OpReadResponseOnly), 0x10, "RC READ_RESPONSE_ONLY"},
		{MakeOpcode(TransportRC, OpAcknowledge), 0x11, "RC ACKNOWLEDGE"},
		{MakeOpcode(TransportRC, OpAtomicAcknowledge), 0x12, "RC ATOMIC_ACKNOWLEDGE"},
		{MakeOpcode(TransportRC, OpCompareSwap), 0x13, "RC COMPARE_SWAP"},
		{MakeOpcode(TransportRC, OpFetchAdd), 0x14, "RC FETCH_ADD"},
		{MakeOpcode(TransportRC, OpSendLastInv), 0x16, "RC SEND_LAST_INV"},
		{MakeOpcode(TransportRC, OpSendOnlyInv), 0x17, "RC SEND_ONLY_INV"},
		{MakeOpcode(TransportRC, OpFlush), 0x1c, "RC FLUSH"},
		{MakeOpcode(TransportRC, OpAtomicWrite), 0x1d, "RC ATOMIC_WRITE"},
		{MakeOpcode(TransportUC, OpSendOnly), 0x24, "UC SEND_ONLY"},
		{MakeOpcode(TransportRD, OpResync), 0x55, "RD RESYNC"},
		{MakeOpcode(TransportUD, OpSendOnly), 0x64, "UD SEND_ONLY"},
		{MakeOpcode(TransportUD, OpSendOnlyImm), 0x65, "UD SEND_ONLY_IMM"},
		{MakeOpcode(TransportCNP, 1), 0x81, "CNP"},
		{MakeOpcode(TransportXRC, OpSendOnly), 0xa4, "XRC SEND_ONLY"},
		{MakeOpcode(TransportRC, 0xe4), 0x04, "RC SEND_ONLY"}, // only five bits of the operation are used
		{0x18, 0x18, "0x18"},
		{0x2c, 0x2c, "0x2c"},
		{0xff, 0xff, "0xff"},
	} {
		if uint8(tc.op) != tc.want || tc.op.String() != tc.name {
			t.Errorf("opcode %#02x %v, want %#02x %s", uint8(tc.op), tc.op, tc.want, tc.name)
		}
		if back := MakeOpcode(tc.op.Transport(), tc.op.Operation()); back != tc.op {
			t.Errorf("%v: transport and operation give %v", tc.op, back)
		}
	}
	if got := Transport(0xc0).String(); got != "0xc0" {
		t.Errorf("reserved transport prints as %q", got)
	}
}

// headersOf lists the headers between BTH and payload of each defined opcode, in wire order.
var headersOf = map[Opcode][]HeaderSet{
	0x00: {}, 0x01: {}, 0x02: {}, 0x03: {HasImm}, 0x04: {}, 0x05: {HasImm},
	0x06: {HasRETH}, 0x07: {}, 0x08: {}, 0x09: {HasImm}, 0x0a: {HasRETH}, 0x0b: {HasRETH, HasImm},
	0x0c: {HasRETH}, 0x0d: {HasAETH}, 0x0e: {}, 0x0f: {HasAETH}, 0x10: {HasAETH},
	0x11: {HasAETH}, 0x12: {HasAETH, HasAtomicAckETH}, 0x13: {HasAtomicETH}, 0x14: {HasAtomicETH},
	0x16: {HasIETH}, 0x17: {HasIETH}, 0x1c: {HasFETH, HasRETH}, 0x1d: {HasRETH},

	0x20: {}, 0x21: {}, 0x22: {}, 0x23: {HasImm}, 0x24: {}, 0x25: {HasImm},
	0x26: {HasRETH}, 0x27: {}, 0x28: {}, 0x29: {HasImm}, 0x2a: {HasRETH}, 0x2b: {HasRETH, HasImm},

	0x40: {HasRDETH, HasDETH}, 0x41: {HasRDETH, HasDETH}, 0x42: {HasRDETH, HasDETH}, 0x43: {HasRDETH, HasDETH, HasImm},
	0x44: {HasRDETH, HasDETH}, 0x45: {HasRDETH, HasDETH, HasImm}, 0x46: {HasRDETH, HasDETH, HasRETH},
	0x47: {HasRDETH, HasDETH}, 0x48: {HasRDETH, HasDETH}, 0x49: {HasRDETH, HasDETH, HasImm},
	0x4a: {HasRDETH, HasDETH, HasRETH}, 0x4b: {HasRDETH, HasDETH, HasRETH, HasImm}, 0x4c: {HasRDETH, HasDETH, HasRETH},
	0x4d: {HasRDETH, HasAETH}, 0x4e: {HasRDETH}, 0x4f: {HasRDETH, HasAETH}, 0x50: {HasRDETH, HasAETH},
	0x51: {HasRDETH, HasAETH}, 0x52: {HasRDETH, HasAETH, HasAtomicAckETH},
	0x53: {HasRDETH, HasDETH, HasAtomicETH}, 0x54: {HasRDETH, HasDETH, HasAtomicETH}, 0x55: {HasRDETH, HasDETH},

	0x64: {HasDETH}, 0x65: {HasDETH, HasImm},
	0x81: {},

	0xa0: {HasXRCETH}, 0xa1: {HasXRCETH}, 0xa2: {HasXRCETH}, 0xa3: {HasXRCETH, HasImm}, 0xa4: {HasXRCETH}, 0xa5: {HasXRCETH, HasImm},
	0xa6: {HasXRCETH, HasRETH}, 0xa7: {HasXRCETH}, 0xa8: {HasXRCETH}, 0xa9: {HasXRCETH, HasImm},
	0xaa: {HasXRCETH, HasRETH}, 0xab: {HasXRCETH, HasRETH, HasImm}, 0xac: {HasXRCETH, HasRETH},
	0xad: {HasAETH}, 0xae: {}, 0xaf: {HasAETH}, 0xb0: {HasAETH}, 0xb1: {HasAETH}, 0xb2: {HasAETH, HasAtomicAckETH},
	0xb3: {HasXRCETH, HasAtomicETH}, 0xb4: {HasXRCETH, HasAtomicETH}, 0xb6: {HasXRCETH, HasIETH}, 0xb7: {HasXRCETH, HasIETH},
	0xbc: {HasXRCETH, HasFETH, HasRETH}, 0xbd: {HasXRCETH, HasRETH},
}

var lenOf = map[HeaderSet]int{
	HasRDETH: 4, HasXRCETH: 4, HasDETH: 8, HasFETH: 4, HasRETH: 16, HasAtomicETH: 28, HasAETH: 4,
	HasAtomicAckETH: 8, HasImm: 4, HasIETH: 4,
}

func TestOpcodeHeaders(t *testing.T) {
	longest := 0
	for i := range 256 {
		op := Opcode(i)
		info, ok := op.Info()
		parts, exists := headersOf[op]
		if ok != exists {
			t.Errorf("%v: Info returns %v, want %v", op, ok, exists)
		}
		if !ok {
			if info != (Info{}) {
				t.Errorf("%v: reserved, yet Info = %+v", op, info)
			}
			continue
		}
		var set HeaderSet
		length := 12
		for _, h := range parts {
			if h <= set {
				t.Errorf("%v: bits of the set are not in wire order", op)
			}
			set |= h
			length += lenOf[h]
		}
		if info.Headers != set || info.HeaderLen != length {
			t.Errorf("%v: headers %#x of %d bytes, want %#x of %d", op, info.Headers, info.HeaderLen, set, length)
		}
		longest = max(longest, length)
	}
	if longest != MaxHeaderLen {
		t.Errorf("longest headers are %d bytes, MaxHeaderLen is %d", longest, MaxHeaderLen)
	}
}

func TestOpcodeClasses(t *testing.T) {
	const recv = ConsumesRecv | CompletesRecv
	for _, tc := range []struct {
		op   Operation
		want Class
	}{
		{OpSendFirst, Request | Send | First | Start | HasPayload | ConsumesRecv},
		{OpSendMiddle, Request | Send | Middle | HasPayload},
		{OpSendLast, Request | Send | Last | End | HasPayload | CompletesRecv},
		{OpSendLastImm, Request | Send | Last | End | HasPayload | CompletesRecv},
		{OpSendOnly, Request | Send | Only | Start | End | HasPayload | recv},
		{OpSendOnlyImm, Request | Send | Only | Start | End | HasPayload | recv},
		{OpWriteFirst, Request | Write | First | Start | HasPayload},
		{OpWriteMiddle, Request | Write | Middle | HasPayload},
		{OpWriteLast, Request | Write | Last | End | HasPayload},
		{OpWriteLastImm, Request | Write | Last | End | HasPayload | recv},
		{OpWriteOnly, Request | Write | Only | Start | End | HasPayload},
		{OpWriteOnlyImm, Request | Write | Only | Start | End | HasPayload | recv},
		{OpReadRequest, Request | Read | Start | End},
		{OpReadResponseFirst, Response | Read | First | Start | HasPayload},
		{OpReadResponseMiddle, Response | Read | Middle | HasPayload},
		{OpReadResponseLast, Response | Read | Last | End | HasPayload},
		{OpReadResponseOnly, Response | Read | Only | Start | End | HasPayload},
		{OpAcknowledge, Response | Acknowledge | Start | End},
		{OpAtomicAcknowledge, Response | Acknowledge | Atomic | Start | End},
		{OpCompareSwap, Request | Atomic | Start | End},
		{OpFetchAdd, Request | Atomic | Start | End},
		{OpSendLastInv, Request | Send | Last | End | HasPayload | CompletesRecv},
		{OpSendOnlyInv, Request | Send | Only | Start | End | HasPayload | recv},
		{OpFlush, Request | Flush | Start | End},
		{OpAtomicWrite, Request | AtomicWrite | Start | End | HasPayload},
	} {
		for _, tr := range []Transport{TransportRC, TransportUC, TransportRD, TransportUD, TransportXRC} {
			info, ok := MakeOpcode(tr, tc.op).Info()
			if ok && info.Class != tc.want {
				t.Errorf("%v: class %#x, want %#x", MakeOpcode(tr, tc.op), info.Class, tc.want)
			}
		}
	}
	if info, ok := CNP.Info(); !ok || info.Class != Start|End|HasPayload {
		t.Errorf("CNP: class %#x, %v", info.Class, ok)
	}
}

func TestHasRequiresAllBits(t *testing.T) {
	if c := Request | Send; !c.Has(Request|Send) || c.Has(Request|Write) || !c.Has(0) {
		t.Error("Class.Has does not require all bits")
	}
	if s := HasRETH | HasImm; !s.Has(HasRETH|HasImm) || s.Has(HasRETH|HasAETH) {
		t.Error("HeaderSet.Has does not require all bits")
	}
}
