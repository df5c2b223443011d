// Package pcapng writes the files of packets that Wireshark opens, for all who
// have packets: links (package pcaplink) and switches (package impair/ethernet).
// It knows the file, its limits and its failures; what the bytes of a packet are
// is for its users to know. Reading such files is not its business, but for
// [Trim], which repairs one whose writer was killed.
//
// A File may be used from several goroutines.
package pcapng
