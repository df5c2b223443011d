package rocewire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// FuzzFilter passes a packet with a right ICRC to a NIC with one defect and to a NIC with all.
func FuzzFilter(f *testing.F) {
	for op := range 256 {
		f.Add(uint8(op), []byte{byte(op), 0x40, 0xff, 0xff, 0, 0, 0, ownQP, 0x80, 0, 0, nextPSN - 1, 0, 0, 0, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		b = append(b, make([]byte, wire.BTHLen+wire.ICRCLen)...)
		if len(b) > wire.MaxPacketLen {
			return
		}
		var one, all Defects
		v := reflect.ValueOf(&all).Elem()
		for i := range v.NumField() {
			v.Field(i).SetBool(true)
		}
		reflect.ValueOf(&one).Elem().Field(int(which) % v.NumField()).SetBool(true)
		for _, q := range []Defects{one, all} {
			r := newRig(q)
			d := link.Datagram{Src: netip.AddrPortFrom(peerAddr, 0xc123), Dst: netip.AddrPortFrom(ownAddr, wire.Port), Payload: b}
			wire.NewICRC(d.Src, d.Dst).Seal(0, d.Payload)
			r.filter.Input(0, &d)
			r.ready = []link.Datagram{d}
			r.output(0)
		}
	})
}

// clearDF gives an IPv4 packet the ICRC of one with DF clear, computed over the whole pseudo-packet
// of the ICRC.
func clearDF(d *link.Datagram) {
	d.Variants = link.MayFragment
	body := slices.Clone(d.Payload[:len(d.Payload)-wire.ICRCLen])
	length := uint16(link.UDPHeaderLen + len(d.Payload))
	b := slices.Repeat([]byte{0xff}, 8)
	b = append(b, 0x45, 0xff)
	b = binary.BigEndian.AppendUint16(b, link.IPv4HeaderLen+length)
	b = binary.BigEndian.AppendUint16(b, uint16(d.IPID))
	b = append(b, 0, 0, 0xff, 17, 0xff, 0xff)
	b = append(append(b, d.Src.Addr().AsSlice()...), d.Dst.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, d.Src.Port())
	b = binary.BigEndian.AppendUint16(b, d.Dst.Port())
	b = append(binary.BigEndian.AppendUint16(b, length), 0xff, 0xff)
	body[4] = 0xff
	binary.LittleEndian.PutUint32(d.Payload[len(body):], crc32.ChecksumIEEE(append(b, body...)))
}
