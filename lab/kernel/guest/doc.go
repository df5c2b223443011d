// Package guest is the inside of a virtual machine of package lab/kernel: its
// first process, which mounts what a system has, loads modules, gives the wire its
// addresses and its RDMA devices, and then runs programs and takes files for
// whoever is at the other end of the control link; and the client of that.
//
// It is no general init and no remote shell: it serves one lab, has no user to ask
// and no key to check. It listens on the control link alone, at whose other end
// there is nothing but the namespace of the lab that started the machine.
//
// The program is the same as the one outside: a binary that imports the package and
// is started as InitPath by a kernel is the first process of a guest. Serve and the
// client functions work anywhere; a connection carries one request, and belongs to
// whoever made it.
package guest
