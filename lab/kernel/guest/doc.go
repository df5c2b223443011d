// Package guest is the software inside a virtual machine of package lab/kernel, and
// its client. As the init process it mounts file systems, loads modules, configures
// the network and the RDMA devices, and then runs commands and stores files for
// clients on the control link.
//
// It is not a general init or remote shell: it serves one lab without authentication, and listens
// on the control link only, which ends in the lab's namespace.
//
// A program that imports the package is also the init process of its guests: it is
// one if a kernel starts it as InitPath. Server and the client functions work
// anywhere. A connection carries one request.
package guest
