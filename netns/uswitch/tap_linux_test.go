package uswitch

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
)

// tap receives and sends raw frames on a host's interface.
type tap struct{ fd int }

func openTap(tb testing.TB, h *host) *tap {
	tb.Helper()
	t := &tap{}
	must.Do(tb, h.do(func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		if t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		dev, err := netlink.LinkByName(hostDevice)
		if err != nil {
			return err
		}
		_ = unix.SetsockoptInt(t.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		_ = unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
		return unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Attrs().Index})
	}))
	tb.Cleanup(func() { unix.Close(t.fd) })
	tv := unix.NsecToTimeval(testTimeout.Nanoseconds())
	must.Do(tb, unix.SetsockoptTimeval(t.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	return t
}

// frames returns received frames until there are n or none arrives for a while.
// It skips the group membership reports of hosts.
func (t *tap) frames(n int) (all [][]byte) { return t.read(n, 0) }

// waiting returns the frames already received.
func (t *tap) waiting() [][]byte { return t.read(1000, unix.MSG_DONTWAIT) }

func (t *tap) read(n, flags int) (all [][]byte) {
	b := make([]byte, 1<<17)
	for len(all) < n {
		k, _, err := unix.Recvfrom(t.fd, b, flags)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return all
		}
		if f := b[:k]; k >= etherLen && (f[0] != 0x33 || f[1] != 0x33) {
			all = append(all, append([]byte(nil), f...))
		}
	}
	return all
}

func (t *tap) send(tb testing.TB, b []byte) {
	tb.Helper()
	must.Do(tb, unix.Send(t.fd, b, 0))
}

// computeInKernel makes the switch's interface segment GSO packets and compute checksums on send:
// received frames show how the kernel interprets the switch's messages.
func computeInKernel(tb testing.TB, at *namespace, name string) {
	tb.Helper()
	must.Do(tb, at.do(func() error {
		if err := DisableGSO(name); err != nil {
			return err
		}
		return ethtoolOff(name, unix.ETHTOOL_STXCSUM)
	}))
}

func ethtoolOff(name string, command uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: command}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], name)
	req.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}

// ident returns the IPv4 identification of a frame.
func ident(b []byte) int { return int(binary.BigEndian.Uint16(b[etherLen+4:])) }

// openTaggedTap opens a tap that reports VLAN tags.
func openTaggedTap(tb testing.TB, h *host) *tap {
	t := openTap(tb, h)
	must.Do(tb, unix.SetsockoptInt(t.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	return t
}

// tag returns the VLAN tag of the next experimental frame.
func (t *tap) tag(tb testing.TB) uint16 {
	tb.Helper()
	b, oob := make([]byte, 2000), make([]byte, 100)
	for {
		n, noob, _, _, err := unix.Recvmsg(t.fd, b, oob, 0)
		must.Do(tb, err)
		if n < etherLen || b[12] != 0x88 || b[13] != 0xb5 {
			continue
		}
		ms := must.Get(unix.ParseSocketControlMessage(oob[:noob]))(tb)
		aux := (*auxdata)(unsafe.Pointer(&ms[0].Data[0]))
		return aux.tci
	}
}
