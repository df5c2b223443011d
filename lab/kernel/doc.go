// Package kernel runs virtual machines with stock Debian kernels, whose software
// RDMA drivers rdma_rxe and siw are devices under test and peers. It needs Linux on
// x86-64 with QEMU, but no hardware, and no root if /dev/net/tun can be opened.
//
// A [Lab] is a set of guests on one bridge, in a network namespace:
//
//	the lab's namespace                             a guest
//	  wire       a bridge, 10.77.0.1, fd77::1  ──── eth0, 10.77.0.11, fd77::11, with rxe0, siw0
//	  judge      a port of the bridge, without an address, for raw frames
//	  control1   10.78.1.1                     ──── control0, 10.78.1.2
//
// Commands and files go to guests over the control links, so that the wire carries
// test traffic only, and may be down.
//
// A program that imports the package is also the init process of its guests: it is one if a kernel
// starts it as InitPath. As init it mounts file systems, loads modules, configures the network and
// the RDMA devices, and then serves the requests of clients ([GuestServer]): [Exec], [Put],
// [SetDevices]. It is not a general init or remote shell.
//
// [Up] creates a lab that ends with this process. It needs the right to create network namespaces:
// root, or a process of netns.StartUnshared. [UpInCurrentNamespace] creates the bridge in the
// namespace of such a process. [Start] creates a lab in a detached process and needs no rights;
// [Connect] finds it by its name. [RunProgram] creates a lab for the duration of a program. A
// program that uses Start or RunProgram must call ServeMain if its first argument is ServeCommand,
// and ProgramMain if it is ProgramCommand.
//
// An [ImageCache] has the images that guests boot: a stock Debian kernel, and an initramfs with the
// modules, libraries and RDMA programs that a guest needs. It downloads and unpacks Debian
// packages, installs nothing, and needs no root. It builds siw, which Debian leaves out, from
// Debian's source of the same kernel. Each image is in a directory named after all of its inputs,
// which is renamed into place when it is complete. Find only looks there; Build asks apt for
// current packages. Processes may share a cache: one builds, the others wait. A [MissingError]
// names missing programs with the command that installs them.
//
// Guests are untrusted and are on no network but the lab's. A Lab is safe for concurrent use.
package kernel
