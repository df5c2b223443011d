package bench

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/ipframe"
)

// fenceTimeout is how long a frame may take to the device's host.
const fenceTimeout = 30 * time.Second

// fence returns when all packets of earlier cases have reached the device's host: a
// device that is opened then would answer them. It sends a frame on each CPU,
// because each has a receive queue.
func (t *benchNetwork) fence(from, to netip.Addr) error {
	if t.wire == nil {
		return nil
	}
	var socket *net.UDPConn
	err := t.device.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		return err
	})
	if err != nil {
		return fmt.Errorf("fence after the previous case: %w", err)
	}
	defer socket.Close()
	dst := netip.AddrPortFrom(to, uint16(socket.LocalAddr().(*net.UDPAddr).Port))
	frame := ipframe.AppendUDP(nil, &link.Datagram{Src: netip.AddrPortFrom(from, dst.Port()), Dst: dst, HopLimit: 1, Payload: []byte("fence")})
	sent, err := onEachCPU(func() error { return t.wire.Send(frame) })
	if err != nil {
		return fmt.Errorf("fence after the previous case: %w", err)
	}
	if err := socket.SetReadDeadline(time.Now().Add(fenceTimeout)); err != nil {
		return err
	}
	buf := make([]byte, len(frame))
	for i := range sent {
		if _, err := socket.Read(buf); err != nil {
			return fmt.Errorf("fence after the previous case: frame %d of %d to %v: %w", i+1, sent, dst, err)
		}
	}
	return nil
}

// onEachCPU calls f on each CPU of this process, and returns their number. It uses
// a thread that is not reused.
func onEachCPU(f func() error) (n int, err error) {
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
