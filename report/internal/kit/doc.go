// Package kit has what all reports share: documents as JSON with strict reading ([Format],
// [WriteJSON]), JUnit XML ([Suites]), result folders ([WriteAll]), the shell, style and script
// of HTML pages ([Layout]), drawings of fabrics ([Draw]), charts over time ([Grid]), and the
// progress of a run on a terminal ([Panel]).
//
// It knows no kind of result: the packages of reports pass what to write and to draw. Files
// are replaced atomically. A page is one self-contained file, and its content security
// policy allows only its own script.
package kit
