package ib

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

func TestDiff(t *testing.T) {
	send := SendOnly(100, []byte("abcdefgh")).AckReq().Or(path4)
	write := WriteOnly(100, At(0x1000, 7, 8), []byte("abcdefgh")).Or(path4)
	for name, c := range map[string]struct {
		want, sent Packet
		diff       string // empty if it matches
	}{
		"no fields":            {Packet{}, send, ""},
		"opcode only":          {Op(OpSendOnly), send, ""},
		"as sent":              {send, send, ""},
		"any PSN":              {SendOnly(AnyPSN, nil), send, ""},
		"any payload":          {SendOnly(100, nil), send, ""},
		"PSN":                  {SendOnly(101, nil), send, "PSN: want 101, got 100"},
		"opcode":               {Op(OpSendOnlyImm), send, "Opcode: want SEND_ONLY_IMM, got SEND_ONLY"},
		"AckReq":               {Op(OpSendOnly).NoAckReq(), send, "AckReq: want false, got true"},
		"no payload":           {SendOnly(100, []byte{}), send, "payload: want 0 B, got 8 B"},
		"payload":              {SendOnly(100, []byte("abcXefgX")), send, "payload: want 5865666758 at byte 3, got 6465666768 there (2 of 8 bytes differ)"},
		"queue pair":           {Packet{}.To(0x12), send, "DestQP: want 0x12, got 0x11"},
		"address":              {Packet{}.From(path4.IP.Dst), send, "source address: want 10.0.0.2, got 10.0.0.1"},
		"two fields":           {SendOnly(101, nil).NoAckReq(), send, "AckReq: want false, got true; PSN: want 101, got 100"},
		"RETH":                 {WriteOnly(100, At(0x1004, 7, 8), nil), write, "RETH VA: want 0x1004, got 0x1000"},
		"part of a RETH":       {Op(OpWriteOnly).WithRETH(RETH{Len: new(uint32(8))}), write, ""},
		"unexpected RETH":      {Op(OpSendOnly).WithRETH(RETH{}), send, "RETH: want one, got none"},
		"ACK":                  {Ack(5, 2), Ack(5, 2).Or(path4), ""},
		"ACK with credits":     {Ack(5, 2), Ack(5, 2).WithCredits(4).Or(path4), ""},
		"ACK of any MSN":       {Ack(5, AnyMSN), Ack(5, 2).Or(path4), ""},
		"MSN":                  {Ack(5, 1), Ack(5, 2).Or(path4), "MSN: want 1, got 2"},
		"ACK against a NAK":    {Ack(5, 2), Nak(5, NakSequence, 2).Or(path4), "syndrome: want ACK, got NAK sequence"},
		"NAK against an ACK":   {Nak(5, NakInvalidRequest, 2), Ack(5, 2).Or(path4), "syndrome: want NAK invalid request, got ACK"},
		"NAK of another code":  {Nak(5, NakInvalidRequest, 2), Nak(5, NakRemoteOp, 2).Or(path4), "syndrome: want NAK invalid request, got NAK remote operational"},
		"RNR":                  {RNR(5, 12, 2), RNR(5, 14, 2).Or(path4), "syndrome: want RNR_NAK timer 12 (640µs), got RNR_NAK timer 14 (1.28ms)"},
		"ACK against reserved": {Ack(5, 2), Ack(5, 2).WithSyndrome(0x9f).Or(path4), "syndrome: want ACK, got reserved ACK 4 syndrome 0x9f"},
		"CNP with BECN":        {CNP(), CNP().Or(path4), ""},
		"CNP without BECN":     {CNP(), Packet{BTH: BTH{BECN: new(false)}}.Or(CNP()).Or(path4), ""},
		"traffic class":        {Packet{}.WithTClass(0x68), send, "traffic class: want 0x68, got 0x00"},
		"UDP checksum":         {Packet{UDP: packet.UDP{Checksum: new(uint16(0))}}, send, ""},
		"UDP port":             {Packet{}.WithSrcPort(0xc001), send, "UDP SrcPort: want 49153, got 49152"},
	} {
		got := reparse(t, c.sent)
		if d := c.want.Diff(got); d.String() != c.diff || c.want.Matches(got) != (c.diff == "") {
			t.Errorf("%s: %q, want %q", name, d, c.diff)
		}
	}
	d := SendOnly(101, nil).NoAckReq().Diff(reparse(t, send))
	if d.Want() != "AckReq false, PSN 101" || d.Got() != "AckReq true, PSN 100" {
		t.Errorf("want %q, got %q", d.Want(), d.Got())
	}
}

// TestDiffComparesEveryField changes one field at a time of a packet that has them all.
func TestDiffComparesEveryField(t *testing.T) {
	full := reparse(t, SendOnly(1, []byte("abcde")).Or(path4))
	for h := HdrRDETH; h <= HdrIETH; h++ {
		if _, err := full.parseHeader(h, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	full.Behind, full.IP.FlowLabel = []byte{1}, new(uint32(1))
	if d := full.Diff(full); d != nil {
		t.Fatalf("the packet differs from itself: %v", d)
	}
	n := 0
	got := clone(full)
	var walk func(at string, v reflect.Value)
	walk = func(at string, v reflect.Value) {
		for i := range v.NumField() {
			f, name := v.Field(i), at+"."+v.Type().Field(i).Name
			was := reflect.New(f.Type()).Elem()
			switch {
			case !f.CanSet() || name == ".Body" || name == ".Trailer": // not compared
				continue
			case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[netip.Addr]():
				walk(name, f)
				continue
			case f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct:
				walk(name, f.Elem())
			}
			was.Set(f)
			switch {
			case f.Kind() == reflect.Slice:
				f.SetBytes([]byte("some other bytes"))
			case f.Kind() == reflect.Struct:
				f.Set(reflect.ValueOf(netip.MustParseAddr("1.2.3.4")))
			case f.Type().Elem().Kind() == reflect.Bool:
				f.Set(reflect.ValueOf(new(!f.Elem().Bool())))
			case f.Type().Elem().Kind() == reflect.Struct:
				f.SetZero()
			default:
				c := reflect.New(f.Type().Elem())
				c.Elem().SetUint(f.Elem().Uint() ^ 1)
				f.Set(c)
			}
			n++
			if d := full.Diff(got); len(d) != 1 {
				t.Errorf("%s changed: %d differences, %v", name, len(d), d)
			}
			f.Set(was)
		}
	}
	walk("", reflect.ValueOf(&got).Elem())
	if n < 70 {
		t.Errorf("only %d fields were changed", n)
	}
}

// For each rule of Faults, a packet violates it, and no valid packet does.
func TestFaults(t *testing.T) {
	data := make([]byte, 256)
	valid := []Packet{
		SendOnly(1, data[:5]).AckReq().SE(), SendFirst(1, data), SendOnly(1, nil).WithUDPChecksum(), CNP(), Nak(1, NakRemoteOp, 0), RNR(1, 31, 0),
		SendOnlyImm(1, 1, data).On(UC).SE(), Datagram(1, 1, 1, data[:7]), WriteOnlyImm(1, At(0, 0, 0), 0, nil).SE(), AtomicWrite(1, At(0, 0, 8), data[:8]),
		Flush(1, 1, 0, At(0, 0, 0)), FetchAdd(1, At(0, 0, 8), 1), CompareSwap(1, At(0, 0, 8), 1, 2), Ack(1, 1).WithCredits(0),
		Nak(1, NakInvalidRD, 0), SendFirst(1, data[:1]), New(OpSendLast, 1, data[:1]), SendOnly(1, nil).OnXRC(5),
	}
	for _, path := range []Packet{path4, path6} {
		for _, p := range valid {
			if fs := reparse(t, p.Or(path)).Faults(); len(fs) > 0 {
				t.Errorf("%v: %v", p, fs)
			}
		}
	}
	feth := Flush(1, 1, 0, At(0, 0, 0))
	feth.FETH.Resv = new(uint32(1))
	xrceth := SendOnly(1, nil).OnXRC(5)
	xrceth.XRCETH.Resv = new(uint8(1))
	deth := Datagram(1, 1, 1, nil)
	deth.DETH.Resv = new(uint8(1))
	badIP, badUDP := SendOnly(1, nil), SendOnly(1, nil)
	badIP.IP.Checksum, badUDP.UDP.Checksum = new(uint16(1)), new(uint16(1))
	cnp := CNP()
	cnp.BTH.PSN = new(PSN(1))
	padded := SendOnly(1, data[:5])
	padded.BTH.PadCnt, padded.Pad = new(uint8(2)), data[:2]
	for rule, broken := range map[string][]Packet{
		"PadCnt fills the payload up to a multiple of four bytes": {padded},
		"the syndrome is not a reserved one":                      {Ack(1, 1).WithSyndrome(0x40), Ack(1, 1).WithSyndrome(0x65)},
		"a CNP has PSN 0 and reserved bytes of 0":                 {cnp, CNP().WithPayload(append(data[:15:15], 1))},
		"the checksum of the IPv4 header is right":                {badIP},
		"the UDP checksum is 0 or right":                          {badUDP},
		"the ICRC is right":                                       {SendOnly(1, nil).BadICRC()},
		"TVer is 0":                                               {SendOnly(1, nil).WithTVer(1)},
		"reserved bits are 0":                                     {SendOnly(1, nil).WithReserved(1, 0), SendOnly(1, nil).WithReserved(0, 1), feth, deth, xrceth},
		"the payload is as long as the opcode allows": {
			Ack(1, 1).WithPayload(data[:4]), SendFirst(1, nil), New(OpSendLast, 1, nil), AtomicWrite(1, At(0, 0, 8), data[:4]), CNP().WithPayload(data[:12]),
		},
		"responses and CNPs do not ask for acknowledgements": {Ack(1, 1).AckReq(), CNP().AckReq()},
		"only the end of a SEND or of a WRITE with immediate data is solicited": {
			SendFirst(1, data).SE(), WriteOnly(1, At(0, 0, 0), nil).SE(), ReadRequest(1, At(0, 0, 0)).SE(),
		},
	} {
		for _, p := range broken {
			if fs := reparse(t, p.Or(path4)).Faults(); len(fs) != 1 || fs[0].Rule != rule {
				t.Errorf("%v: %v, want one fault: %s", p, fs, rule)
			}
		}
	}
	if fs := SendOnly(1, nil).Faults(); len(fs) != 1 {
		t.Errorf("a packet that was not parsed: %v", fs)
	}
}

func TestStrings(t *testing.T) {
	for want, p := range map[string]Packet{
		"SEND_ONLY psn 100 AckReq 64 B":   SendOnly(100, make([]byte, 64)).AckReq(),
		"NAK psn 103 sequence msn 5":      Nak(103, NakSequence, 5),
		"NAK psn 103 code 9 msn 5":        Nak(103, 9, 5),
		"ACK psn 100 credits 6 msn 5":     Ack(100, 5).WithCredits(5),
		"ACK psn 100":                     Ack(100, AnyMSN),
		"ACK msn 5":                       Ack(AnyPSN, 5),
		"any packet":                      {},
		"any packet psn 7":                Packet{}.WithPSN(7),
		"UC SEND_ONLY psn 1 SE 3 B":       SendOnly(1, []byte("abc")).On(UC).SE(),
		"XRC SEND_ONLY psn 1 srq 0x5 3 B": SendOnly(1, []byte("abc")).OnXRC(5),
		"XRC ACK psn 1 msn 2":             Ack(1, 2).On(XRC),
		"FLUSH psn 1 placement 1 selectivity 0 va 0x10 rkey 0x2 len 3": Flush(1, 1, 0, At(16, 2, 3)),
		"opcode 0x18 psn 1 4 B":                                           Op(0x18).WithPSN(1).WithPayload([]byte("abcd")),
		"WRITE_ONLY psn 1 2 B behind the BTH":                             Op(OpWriteOnly).WithPSN(1).WithBody([]byte("ab")),
		"SEND_ONLY psn 1 MigReq FECN BECN pkey 0x7fff tver 3":             Packet{BTH: BTH{FECN: new(true), BECN: new(true)}}.Or(SendOnly(1, nil).MigReq().WithPKey(0x7fff).WithTVer(3)),
		"SEND_ONLY psn 1 reserved 0x01 0x02":                              SendOnly(1, nil).WithReserved(1, 2),
		"reserved ACK 4 psn 1 syndrome 0x9f msn 2":                        Ack(1, 2).WithSyndrome(0x9f),
		"UD SEND_ONLY psn 1 qkey 0x2 from 0x3 1 B":                        Datagram(1, 2, 3, []byte("a")),
		"CM MRA comm 00000001 for 00000002 psn 0 256 B":                   CM(1, MRA{LocalCommID: new(uint32(1)), RemoteCommID: new(uint32(2))}),
		"ACKNOWLEDGE psn 1":                                               Op(OpAcknowledge).WithPSN(1),
		"COMPARE_SWAP psn 1 va 0x10 rkey 0x2 compare 0x3 swap 0x4 AckReq": CompareSwap(1, At(16, 2, 8), 3, 4).AckReq(),
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := reparse(t, SendOnly(1, nil).BadICRC().Or(path4)).String(); !strings.HasSuffix(got, " wrong ICRC") {
		t.Errorf("%q does not report the wrong ICRC", got)
	}
}

func TestAckKinds(t *testing.T) {
	if p := Ack(1, 2); !p.IsAck(AckPositive) || p.IsAck(AckNegative) || p.IsNak(NakSequence) || p.Syndrome() != 0x1f || p.MSN() != 2 {
		t.Errorf("%v has the wrong kind", p)
	}
	if p := Nak(1, NakSequence, 2); !p.IsAck(AckNegative) || p.IsAck(AckPositive) || !p.IsNak(NakSequence) || p.IsNak(NakRemoteOp) || p.Syndrome() != 0x60 {
		t.Errorf("%v has the wrong kind", p)
	}
	if p := (Packet{BTH: BTH{Opcode: new(OpAcknowledge)}, Extensions: Extensions{AETH: &AETH{Kind: new(AckNegative)}}}); !p.IsNak(NakSequence) {
		t.Errorf("%v without a code is no sequence NAK, whose code is 0", p)
	}
	if p := ReadResponseOnly(1, 2, nil); p.IsAck(AckPositive) {
		t.Errorf("%v is taken for an ACK", p)
	}
	if p := SendOnly(1, nil); p.IsAck(AckPositive) || p.HasAckReq() || !p.AckReq().HasAckReq() || p.Syndrome() != 0 || p.MSN() != 0 {
		t.Errorf("%v has the wrong kind", p)
	}
}
