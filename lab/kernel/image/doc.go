// Package image makes what a virtual machine of lab/kernel boots: a stock Debian
// kernel, and an archive of files with the modules, libraries and programs of verbs
// that a guest needs; and siw, which Debian leaves out of its kernels, built from
// Debian's own source of the very kernel.
//
// Images are made once and kept in a cache: each in a folder named after all that
// it was made from, written aside and moved into place when it is whole. Find looks
// there and asks nobody; Build asks apt what is current. A Cache may be used by many
// processes at a time: one builds, the others wait for it.
//
// It boots nothing, needs no root, and installs nothing: packages are fetched and
// unpacked, not more. What it cannot do without is named in a MissingError, with the
// command that installs it.
package image
