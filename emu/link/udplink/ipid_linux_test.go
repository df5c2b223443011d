package udplink

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// frame is an Ethernet frame with IPv4 or IPv6 and UDP, as AF_PACKET receives it.
type frame []byte

func (f frame) v6() bool   { return binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IPV6 }
func (f frame) ip() []byte { return f[14:] }
func (f frame) id() uint16 { return binary.BigEndian.Uint16(f.ip()[4:]) }
func (f frame) df() bool   { return f.ip()[6]&0x40 != 0 }
func (f frame) udp() []byte {
	if f.v6() {
		return f.ip()[link.IPv6HeaderLen:]
	}
	return f.ip()[link.IPv4HeaderLen:]
}
func (f frame) checksum() uint16 { return binary.BigEndian.Uint16(f.udp()[6:]) }

// payload returns the UDP payload without Ethernet padding.
func (f frame) payload() []byte {
	return f.udp()[link.UDPHeaderLen:binary.BigEndian.Uint16(f.udp()[4:])]
}

// tap captures the UDP frames that arrive at a host.
type tap struct {
	fd   int
	port uint16
}

func openTap(t *testing.T, h *testutil.Host, port uint16) *tap {
	t.Helper()
	tp := &tap{port: port}
	must.Do(t, h.Do(func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		tp.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	}))
	t.Cleanup(func() { unix.Close(tp.fd) })
	tv := unix.NsecToTimeval((5 * time.Second).Nanoseconds())
	must.Do(t, unix.SetsockoptTimeval(tp.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	return tp
}

// capture returns the next n frames to the tap's port.
func (tp *tap) capture(t *testing.T, n int) []frame {
	t.Helper()
	var frames []frame
	for len(frames) < n {
		buf := make([]byte, 1<<16)
		k, _, err := unix.Recvfrom(tp.fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatalf("captured %d of %d frames: %v", len(frames), n, err)
		}
		f := frame(buf[:k])
		if k < 14+link.IPv4HeaderLen+link.UDPHeaderLen || (f.v6() && f.ip()[6] != unix.IPPROTO_UDP) {
			continue
		}
		if !f.v6() && (binary.BigEndian.Uint16(f[12:]) != unix.ETH_P_IP || f.ip()[9] != unix.IPPROTO_UDP) {
			continue
		}
		if binary.BigEndian.Uint16(f.udp()[2:]) == tp.port {
			frames = append(frames, f)
		}
	}
	return frames
}

// PatchIPID writes the identification into the payload. The test compares it with that of
// the captured frame, as RoCEv2's ICRC requires.
func TestPatchIPIDMatchesIdentificationOnWire(t *testing.T) {
	for _, gso := range []Offload{OffloadOff, OffloadOn} {
		t.Run("gso "+gso.String(), func(t *testing.T) {
			a, b := testutil.HostPair(t, 1500)
			must.Do(t, a.DisableGSO())
			tp := openTap(t, b, 4791)
			tx := openIn(t, a, Config{Local: a.Addr(false, 4791), GSO: gso, PatchIPID: func(p []byte, id uint16) {
				binary.BigEndian.PutUint16(p, binary.BigEndian.Uint16(p)^id)
			}})
			to := b.Addr(false, 4791)
			sizes := slices.Concat(slices.Repeat([]int{1024}, 70), slices.Repeat([]int{200}, 5), []int{100, 1472})
			ds := make([]link.Datagram, len(sizes))
			for i, n := range sizes {
				ds[i] = link.Datagram{Dst: to, IPID: link.IPIDUnknown, Payload: make([]byte, n)}
			}
			sendAll(t, tx, link.Datagram{Dst: to, Payload: make([]byte, 64)}) // resolves the neighbour
			frames := tp.capture(t, 1)
			sendAll(t, tx, ds...)
			frames = append(frames, tp.capture(t, len(ds))...)

			var ids []uint16
			for i, f := range frames {
				ids = append(ids, f.id())
				if patched := binary.BigEndian.Uint16(f.payload()); patched != f.id() || !f.df() {
					t.Errorf("frame %d has identification %d and DF %v; its payload was patched for %d", i, f.id(), f.df(), patched)
				}
			}
			want := expectedIDs(gso, sizes)
			if !slices.Equal(ids[1:], want) || ids[0] != 0 {
				t.Errorf("identifications %v, want 0 and %v", ids, want)
			}
			for i := range ds { // Send sets those that are not 0
				if got := ds[i].IPID; got != uint32(want[i]) && (want[i] != 0 || got != link.IPIDUnknown) {
					t.Errorf("datagram %d was sent with identification %d; the link reports %#x", i, want[i], got)
				}
			}
		})
	}
}

// expectedIDs numbers the datagrams of each super-packet from 0: 63 of 1024 bytes; 7 of 1024
// and one of 200, which is shorter and so the last; 4 of 200 and one of 100; one of 1472.
func expectedIDs(gso Offload, sizes []int) []uint16 {
	var ids []uint16
	if gso == OffloadOff {
		return make([]uint16, len(sizes))
	}
	for _, run := range []uint16{63, 8, 5, 1} {
		for id := range run {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestChecksumOnWire(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, none := range []bool{false, true} {
			t.Run(fmt.Sprintf("v6 %v, no checksum %v", v6, none), func(t *testing.T) {
				a, b := testutil.HostPair(t, 1500)
				tp := openTap(t, b, 4791)
				tx := openIn(t, a, Config{Local: a.Addr(v6, 4791), NoChecksum: none})
				sendAll(t, tx, link.Datagram{Dst: b.Addr(v6, 4791), Payload: pattern(1, 99)})
				if sum := tp.capture(t, 1)[0].checksum(); (sum == 0) != none {
					t.Errorf("checksum %#x", sum)
				}
			})
		}
	}
}
