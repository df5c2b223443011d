package bench

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// fencePatience is how long a frame may take to the device's host.
const fencePatience = 30 * time.Second

// fence returns when nothing is on its way to the device's host any more that an
// earlier case has sent: a device that is opened then would answer it. Each processor
// has a queue of its own for what is on the cable, so that a frame goes behind each.
func (t *table) fence(from, to netip.Addr) error {
	if t.wire == nil {
		return nil
	}
	var socket *net.UDPConn
	err := t.device.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		return err
	})
	if err != nil {
		return fmt.Errorf("fence off the case before: %w", err)
	}
	defer socket.Close()
	dst := netip.AddrPortFrom(to, uint16(socket.LocalAddr().(*net.UDPAddr).Port))
	frame := appendPacket(nil, &link.Datagram{Src: netip.AddrPortFrom(from, dst.Port()), Dst: dst, HopLimit: 1, Payload: []byte("fence")})
	sent, err := onEachProcessor(func() error { return t.wire.Send(frame) })
	if err != nil {
		return fmt.Errorf("fence off the case before: %w", err)
	}
	if err := socket.SetReadDeadline(time.Now().Add(fencePatience)); err != nil {
		return err
	}
	buf := make([]byte, len(frame))
	for i := range sent {
		if _, err := socket.Read(buf); err != nil {
			return fmt.Errorf("fence off the case before: frame %d of %d to %v: %w", i+1, sent, dst, err)
		}
	}
	return nil
}

// onEachProcessor calls f on each that this process may use, and returns how many
// there are. The thread that moves about is not used again.
func onEachProcessor(f func() error) (n int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var allowed unix.CPUSet
		if err = unix.SchedGetaffinity(0, &allowed); err != nil {
			return
		}
		for cpu := 0; n < allowed.Count(); cpu++ {
			if !allowed.IsSet(cpu) {
				continue
			}
			var one unix.CPUSet
			one.Set(cpu)
			if err = unix.SchedSetaffinity(0, &one); err != nil {
				return
			}
			if err = f(); err != nil {
				return
			}
			n++
		}
	}()
	<-done
	return n, err
}
