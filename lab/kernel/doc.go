// Package kernel brings up virtual machines with stock Debian kernels whose own
// RDMA in software, rdma_rxe and siw, are devices to test and peers to talk to: on
// any Linux on x86-64 with QEMU, without hardware, and without root where
// /dev/net/tun may be opened.
//
// A Lab is some guests on one wire, in a network namespace of its own:
//
//	the lab's namespace                             a guest
//	  wire       a bridge, 10.77.0.1, fd77::1  ──── eth0, 10.77.0.11, fd77::11, with rxe0, siw0
//	  judge      a port of the bridge, without an address, for raw frames
//	  control1   10.78.1.1                     ──── control0, 10.78.1.2
//
// Programs are run in guests, and files put there, over the control link, so that
// nothing but what is tested is on the wire, and a wire that is down is no obstacle.
// What the guests boot is made by package image, and inside is package guest.
//
// Up makes a lab that is this process's: it dies with it, however it does. It takes
// the rights to make network namespaces: those of root, or of an enclosure (see
// netns.StartUnshared); UpHere has the wire in an enclosure's own network, so that the
// whole process is on it. Start makes one that stays up by itself, in a process that
// nobody waits for, and takes no rights; Connect finds it by its name. RunOnce makes
// one for the duration of a program. For these, the program must call ServeMain when
// it is started with ServeCommand as its first argument, and OnceMain with
// OnceCommand.
//
// It judges nothing, and a guest is not to be trusted with anything: it is on no
// network but the lab's. A Lab may be used from many goroutines.
package kernel
