package wire

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DisableOffloads disables checksum offload, segmentation offload and GRO of an interface
// in the network namespace of the calling thread. Use it for both ends of a virtual link,
// and for this end of a real one.
func DisableOffloads(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SGRO, unix.ETHTOOL_STXCSUM} {
		err := ethtool(fd, name, command)
		// Ignore features that the interface does not have.
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("switch offloads of %s off (ethtool command %#x): %w", name, command, err)
		}
	}
	return nil
}

// ethtool runs a command with the value 0.
func ethtool(fd int, name string, command uint32) error {
	value := struct{ command, data uint32 }{command: command}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // of the union in struct ifreq
	}
	if len(name) >= len(req.name) {
		return errors.New("interface name too long")
	}
	copy(req.name[:], name)
	req.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}
