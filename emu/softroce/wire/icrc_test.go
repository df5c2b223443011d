package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// slowICRC computes the ICRC by definition: it masks a copy of the packet and hashes all of it.
func slowICRC(h ipUDP, body []byte) uint32 {
	b := h.Append(nil, append(bytes.Clone(body), 0, 0, 0, 0))
	b = b[:len(b)-ICRCLen]
	udp := IPv4HeaderLen
	if b[0]>>4 == 4 {
		b[1], b[8], b[10], b[11] = 0xFF, 0xFF, 0xFF, 0xFF
	} else {
		udp = IPv6HeaderLen
		b[0] |= 0x0F
		b[1], b[2], b[3], b[7] = 0xFF, 0xFF, 0xFF, 0xFF
	}
	b[udp+6], b[udp+7] = 0xFF, 0xFF
	b[udp+UDPHeaderLen+4] = 0xFF
	return crc32.ChecksumIEEE(append(bytes.Repeat([]byte{0xFF}, 8), b...))
}

// flows are addresses to compute ICRCs between.
var flows = []ipUDP{
	{Src: netip.MustParseAddrPort("10.77.0.1:49152"), Dst: netip.MustParseAddrPort("10.77.0.11:4791"), HopLimit: 64},
	{Src: netip.MustParseAddrPort("255.0.1.2:65535"), Dst: netip.MustParseAddrPort("0.0.0.1:4791"), TClass: 0x6a},
	{Src: netip.MustParseAddrPort("[fd77::1]:49152"), Dst: netip.MustParseAddrPort("[fd77::11]:4791"), FlowLabel: 0x54321},
	{Src: netip.MustParseAddrPort("[fe80::1]:1"), Dst: netip.MustParseAddrPort("[ff02::2]:4791"), TClass: 0xff, HopLimit: 1},
}

func randomPacket(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestICRCWorkedExample(t *testing.T) {
	// The CRC register at each step for the RC ACK of the golden packets.
	h := ip11to12(0xc93f, 0x953e)
	body := fromHex(t, "1100ffff0000001f004bcf5b1f000001")
	c := NewICRC(h.Src, h.Dst)
	register := c.updateHeaders(h.ID, len(body)+ICRCLen)
	if register != 0x896e3717 {
		t.Errorf("register after IP and UDP = %08x, want 896e3717", register)
	}
	if register = updateBTH(register, (*[BTHLen]byte)(body)); register != 0x4b53859e {
		t.Errorf("register after the BTH = %08x, want 4b53859e", register)
	}
	if sum := c.Sum(h.ID, body); sum != 0x4a7b51d3 {
		t.Errorf("ICRC = %08x, want 4a7b51d3", sum)
	}
	b := append(body, 0, 0, 0, 0)
	if c.Seal(h.ID, b); !bytes.Equal(b[16:], []byte{0xd3, 0x51, 0x7b, 0x4a}) {
		t.Errorf("ICRC on the wire = %x, want d3517b4a: least significant byte first", b[16:])
	}
}

func TestICRCEqualsItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	lengths := []int{BTHLen, 13, 14, 15, 16, 28, 255, 256, 1036, 4108, MaxPacketLen, MaxUDPPayload - ICRCLen}
	for range 200 {
		lengths = append(lengths, BTHLen+rng.IntN(9000))
	}
	for _, n := range lengths {
		for _, h := range flows {
			h.ID = uint16(rng.Uint32())
			body := randomPacket(rng, n)
			if got, want := h.ICRC().Sum(h.ID, body), slowICRC(h, body); got != want {
				t.Fatalf("%v, ID %#x, %d bytes: ICRC %08x, want %08x", h.Src, h.ID, n, got, want)
			}
		}
	}
}

func TestICRCOfMappedAddressesIsThatOfIPv4(t *testing.T) {
	h := flows[0]
	mapped := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	if NewICRC(mapped(h.Src), mapped(h.Dst)) != NewICRC(h.Src, h.Dst) {
		t.Error("a mapped address gives another ICRC")
	}
}

func TestCheckRejectsEverySingleBitFlip(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, h := range flows {
		c := h.ICRC()
		for _, n := range []int{BTHLen + ICRCLen, 20, 44, 300, 1044, MaxPacketLen} {
			b := randomPacket(rng, n)
			id := uint16(rng.Uint32())
			c.Seal(id, b)
			if !c.Check(id, b) {
				t.Fatalf("%v: %d bytes: sealed packet rejected", h.Src, n)
			}
			for bit := range n * 8 {
				b[bit/8] ^= 1 << (bit % 8)
				_, anyID := c.CheckAnyIPID(b)
				masked := bit/8 == 4
				if full := c.Check(id, b); full != masked || anyID != masked {
					t.Fatalf("%v: %d bytes, bit %d of byte %d flipped: Check %v, CheckAnyIPID %v; want %v",
						h.Src, n, bit%8, bit/8, full, anyID, masked)
				}
				b[bit/8] ^= 1 << (bit % 8)
			}
		}
	}
}

// Whether a flipped bit looks like another identification depends only on the distance between the
// two. So the test shifts one bit back to the identification, for all packets up to MaxAnyIPIDLen.
func TestCheckAnyIPIDRejectsSingleBitErrors(t *testing.T) {
	fieldBits := 16
	toPayload := 8 * (ipv4HeadersLen - ipv4IDAt)
	last := toPayload + 8*MaxAnyIPIDLen - 1
	p := poly(1) // a bit that enters the register
	for distance := 0; distance <= last; distance++ {
		if distance >= fieldBits && p>>16 == 0 {
			t.Fatalf("a bit flipped in byte %d passes as identification %04x", (distance-toPayload)/8, p)
		}
		p = p.mul(polyXInv)
	}

	// The limit is exact: in a longer packet, a flipped bit of the next byte is accepted.
	b := make([]byte, MaxAnyIPIDLen+ICRCLen+4)
	c := NewICRC(flows[0].Src, flows[0].Dst)
	c.Seal(0, b)
	b[MaxAnyIPIDLen] ^= 1 << 6
	if id, ok := c.CheckAnyIPID(b); !ok || id == 0 || c.Check(0, b) {
		t.Errorf("bit 6 of byte %d: CheckAnyIPID = %#x, %v: MaxAnyIPIDLen is too small", MaxAnyIPIDLen, id, ok)
	}
}

func TestCheckAnyIPIDFindsEveryIdentification(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{BTHLen + ICRCLen, 232, MaxPacketLen} {
		b := randomPacket(rng, n)
		c := NewICRC(flows[0].Src, flows[0].Dst)
		c.Seal(0, b)
		sealed := binary.LittleEndian.Uint32(b[n-ICRCLen:])
		for id := range 1 << 16 {
			id := uint16(id)
			binary.LittleEndian.PutUint32(b[n-ICRCLen:], sealed^IDDelta(id, n))
			if got, ok := c.CheckAnyIPID(b); !ok || got != id {
				t.Fatalf("%d bytes: CheckAnyIPID = %#x, %v; want %#x, true", n, got, ok, id)
			}
			if id%997 == 0 && !c.Check(id, b) { // a sample: hashing is slow
				t.Fatalf("%d bytes: IDDelta(%#x) does not give the ICRC of that identification", n, id)
			}
		}
	}
}

func TestCheckAnyIPIDAcceptsFewRandomICRCs(t *testing.T) {
	const tries, limit = 200_000, 200_000 >> 15
	rng := rand.New(rand.NewPCG(13, 14))
	c := NewICRC(flows[0].Src, flows[0].Dst)
	accepted := 0
	for range tries {
		b := randomPacket(rng, BTHLen+ICRCLen+4*rng.IntN(16))
		if _, ok := c.CheckAnyIPID(b); ok {
			accepted++
		}
	}
	if accepted > limit {
		t.Errorf("%d of %d random packets accepted, want at most %d", accepted, tries, limit)
	}
}

func TestCheckAnyIPIDIsCheckOverIPv6(t *testing.T) {
	c := NewICRC(flows[2].Src, flows[2].Dst)
	b := make([]byte, 64)
	c.Seal(0, b)
	if _, ok := c.CheckAnyIPID(b); !ok {
		t.Fatal("sealed packet rejected")
	}
	c.Seal(0x1234, b) // IPv6 has no identification
	if id, ok := c.CheckAnyIPID(b); !ok || id != 0 {
		t.Errorf("CheckAnyIPID = %#x, %v; want 0, true", id, ok)
	}
	sealed := binary.LittleEndian.Uint32(b[60:])
	for id := 1; id < 1<<16; id++ {
		binary.LittleEndian.PutUint32(b[60:], sealed^IDDelta(uint16(id), len(b)))
		if _, ok := c.CheckAnyIPID(b); ok {
			t.Fatalf("difference of IPv4 identification %#x accepted", id)
		}
	}
}

func TestCheckRejectsShortPackets(t *testing.T) {
	for _, h := range flows {
		c := h.ICRC()
		for _, n := range []int{0, 1, 4, 12, 15, MaxUDPPayload + 1, 1 << 16, 1 << 17} {
			b := make([]byte, n)
			if n > BTHLen+ICRCLen {
				c.Seal(0, b)
			}
			_, anyID := c.CheckAnyIPID(b)
			if c.Check(0, b) || anyID {
				t.Errorf("%v: %d bytes accepted", h.Src, n)
			}
		}
	}
}

func TestReversedICRCIsRejected(t *testing.T) {
	c := NewICRC(flows[0].Src, flows[0].Dst)
	b := make([]byte, 64)
	c.Seal(7, b)
	b[60], b[61], b[62], b[63] = b[63], b[62], b[61], b[60]
	if _, anyID := c.CheckAnyIPID(b); anyID || c.Check(7, b) {
		t.Error("ICRC accepted most significant byte first")
	}
}

func TestSumDoesNotModifyPacket(t *testing.T) {
	c := NewICRC(flows[0].Src, flows[0].Dst)
	b := make([]byte, 64)
	c.Sum(0, b)
	if !bytes.Equal(b, make([]byte, 64)) {
		t.Errorf("packet became %x", b)
	}
}

func TestICRCDoesNotAllocate(t *testing.T) {
	b := make([]byte, 1044)
	for _, h := range flows {
		c := h.ICRC()
		c.Seal(5, b)
		for name, fn := range map[string]func(){
			"NewICRC":      func() { c = NewICRC(h.Src, h.Dst) },
			"Seal":         func() { c.Seal(5, b) },
			"Check":        func() { c.Check(5, b) },
			"CheckAnyIPID": func() { c.CheckAnyIPID(b) },
		} {
			if n := testing.AllocsPerRun(100, fn); n != 0 {
				t.Errorf("%v: %s allocates %v times", h.Src, name, n)
			}
		}
	}
}

func FuzzICRC(f *testing.F) {
	for i := range flows {
		p := samplePacket(MakeOpcode(TransportRC, OpWriteOnly), 11*i)
		f.Add(uint8(i), uint16(0x953e*i), uint32(i), p.Append(nil))
	}
	f.Fuzz(func(t *testing.T, flow uint8, id uint16, flip uint32, b []byte) {
		h := flows[int(flow)%len(flows)]
		c := h.ICRC()
		if len(b) < BTHLen+ICRCLen || len(b) > MaxUDPPayload {
			if _, anyID := c.CheckAnyIPID(b); anyID || c.Check(id, b) {
				t.Fatalf("%d bytes accepted", len(b))
			}
			return
		}
		h.ID = id
		c.Seal(id, b)
		body := b[:len(b)-ICRCLen]
		if got, want := binary.LittleEndian.Uint32(b[len(body):]), slowICRC(h, body); got != want {
			t.Fatalf("ICRC %08x, want %08x", got, want)
		}
		wantID := id
		if h.Src.Addr().Is6() {
			wantID = 0
		}
		if got, ok := c.CheckAnyIPID(b); !c.Check(id, b) || !ok || got != wantID {
			t.Fatalf("sealed for %#x: Check %v, CheckAnyIPID %#x, %v", id, c.Check(id, b), got, ok)
		}
		bit := int(flip % uint32(8*len(b)))
		b[bit/8] ^= 1 << (bit % 8)
		if masked := bit/8 == 4; c.Check(id, b) != masked {
			t.Fatalf("bit %d flipped: Check = %v", bit, !masked)
		}
		if _, anyID := c.CheckAnyIPID(b); anyID != (bit/8 == 4) && len(b) <= MaxAnyIPIDLen {
			t.Fatalf("bit %d flipped: CheckAnyIPID = %v", bit, anyID)
		}
	})
}
