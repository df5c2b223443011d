// Package image builds the images that virtual machines of lab/kernel boot: a stock
// Debian kernel, and an initramfs with the modules, libraries and RDMA programs
// that a guest needs. It also builds siw, which Debian leaves out, from Debian's
// source of the same kernel.
//
// Images are kept in a cache, each in a directory named after all of its inputs,
// which is renamed into place when it is complete. Find only looks there; Build
// asks apt for current packages. Processes may share a Cache: one builds, the
// others wait.
//
// The package needs no root, and installs nothing: it downloads and unpacks Debian
// packages. A MissingError names missing programs with the command that installs
// them.
package image
