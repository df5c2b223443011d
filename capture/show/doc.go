// Package show prints what package capture reads: a line a packet, headers field
// by field, bytes, JSON, and counts at the end.
//
// It writes to an io.Writer and knows terminals only as a width and whether they
// want colour; what a file says is never sent there unless it is printable. It
// keeps a page of lines back to align them, and counts of a bounded number of
// flows: files may be of any length. A [Printer] has one owner.
package show
