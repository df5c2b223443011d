package udplink

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// skfNetOff is the offset of the network header in a filter (SKF_NET_OFF).
const skfNetOff = 1<<32 - 0x100000

// attachFragmentFilter makes the kernel drop IPv4 packets with options, fragments, and
// packets without DF. The socket itself does not show these.
func attachFragmentFilter(fd int) error {
	const (
		version, noOptions = 0x40, 5
		dontFragment       = 0x4000
		flags              = 6 // offset of the flags and the fragment offset
		accept, drop       = 1<<32 - 1, 0
	)
	steps := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: skfNetOff},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: version | noOptions, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: skfNetOff + flags},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: dontFragment, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: accept},
		{Code: unix.BPF_RET | unix.BPF_K, K: drop},
	}
	prog := unix.SockFprog{Len: uint16(len(steps)), Filter: &steps[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("set SO_ATTACH_FILTER: %w", err)
	}
	return nil
}
