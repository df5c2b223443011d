package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openSocket opens a socket in the lab's namespace and sends it to the client,
// which may have no right to enter the namespace.
func (s *server) openSocket(c *client, r *request) error {
	var file *os.File
	err := s.lab.ns.Do(func() (err error) {
		file, err = newSocket(r)
		return err
	})
	if err != nil {
		return err
	}
	defer file.Close()
	c.respond(response{}, file)
	return nil
}

// fileSocket is implemented by all sockets of package net.
type fileSocket interface {
	File() (*os.File, error)
	Close() error
}

func newSocket(r *request) (*os.File, error) {
	if r.Network == packetNetwork {
		return newPacketSocket(r.Address)
	}
	var socket any
	var err error
	switch {
	case !r.Listen:
		d := net.Dialer{Timeout: dialTimeout}
		socket, err = d.Dial(r.Network, r.Address)
	case strings.HasPrefix(r.Network, "tcp"):
		socket, err = net.Listen(r.Network, r.Address)
	default:
		socket, err = net.ListenPacket(r.Network, r.Address)
	}
	if err != nil {
		return nil, err
	}
	f, ok := socket.(fileSocket)
	if !ok {
		return nil, fmt.Errorf("a socket of network %s has no descriptor", r.Network)
	}
	defer f.Close()
	return f.File()
}

// newPacketSocket opens a packet socket on an interface in promiscuous mode.
func newPacketSocket(device string) (*os.File, error) {
	fail := func(err error) error { return fmt.Errorf("packet socket on %s: %w", device, err) }
	ifc, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fail(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fail(err)
	}
	file := os.NewFile(uintptr(fd), device)
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifc.Index}); err != nil {
		file.Close()
		return nil, fail(err)
	}
	promiscuous := &unix.PacketMreq{Ifindex: int32(ifc.Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, promiscuous); err != nil {
		file.Close()
		return nil, fail(err)
	}
	return file, nil
}

// run runs a program in the lab's namespace with the client's descriptors. It
// returns when the program ends, and kills it when the client disconnects.
func (s *server) run(c *client, r *request) error {
	if len(r.Args) == 0 || r.Path == "" || len(c.files) != 3 {
		return errors.New("want a program and three descriptors")
	}
	if info, err := os.Stat(r.Dir); r.Dir != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("the lab cannot find the working directory %s", r.Dir)
	}
	cmd := &exec.Cmd{Path: r.Path, Args: r.Args, Dir: r.Dir, Env: s.lab.programEnv(r.Env)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.files[0], c.files[1], c.files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.lab.ns.Start(cmd); err != nil {
		return err
	}
	group := -cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		for {
			var sig signalMessage
			if c.in.Decode(&sig) != nil {
				break // the client has disconnected
			}
			_ = syscall.Kill(group, syscall.Signal(sig.Signal)) // it may have ended
		}
		_ = syscall.Kill(group, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Second):
			_ = syscall.Kill(group, syscall.SIGKILL)
		}
	}()
	_ = cmd.Wait() // ProcessState has the result
	close(ended)
	_ = syscall.Kill(group, syscall.SIGKILL) // remaining processes of the group
	code := exitCode(cmd.ProcessState)
	c.respond(response{ExitCode: &code})
	return nil
}
