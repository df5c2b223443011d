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

// open opens a socket in the lab's namespace and gives it to the client, who need
// not have the rights to be there.
func (s *server) open(c *client, r *request) error {
	var file *os.File
	err := s.lab.ns.Do(func() (err error) {
		file, err = openSocket(r)
		return err
	})
	if err != nil {
		return err
	}
	defer file.Close()
	c.answer(answer{}, file)
	return nil
}

// filer is every socket of package net.
type filer interface {
	File() (*os.File, error)
	Close() error
}

func openSocket(r *request) (*os.File, error) {
	if r.Network == packetNetwork {
		return openPacket(r.Address)
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
	f, ok := socket.(filer)
	if !ok {
		return nil, fmt.Errorf("a socket of network %s cannot be handed on", r.Network)
	}
	defer f.Close()
	return f.File()
}

// openPacket opens a raw packet socket on an interface, that sees all that passes.
func openPacket(device string) (*os.File, error) {
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
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in the order of the network
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

// run runs a program in the lab's namespace with the client's descriptors, until it
// ends or the client does.
func (s *server) run(c *client, r *request) error {
	if len(r.Args) == 0 || r.Path == "" || len(c.files) != 3 {
		return errors.New("no program to run, or not with three descriptors")
	}
	if info, err := os.Stat(r.Dir); r.Dir != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("the working folder %s is not there for the lab", r.Dir)
	}
	cmd := &exec.Cmd{Path: r.Path, Args: r.Args, Dir: r.Dir, Env: s.lab.environment(r.Env)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.files[0], c.files[1], c.files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.lab.ns.Start(cmd); err != nil {
		return err
	}
	group := -cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		for {
			var sig signalled
			if c.in.Decode(&sig) != nil {
				break // the client is gone
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
	_ = cmd.Wait() // the state says how it ended
	close(ended)
	_ = syscall.Kill(group, syscall.SIGKILL) // what it left behind
	code := exitCode(cmd.ProcessState)
	c.answer(answer{Exit: &code})
	return nil
}
