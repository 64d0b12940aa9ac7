// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"unicode"
	"unicode/utf8"
)

// AppendText appends text from outside (thread names, executable names) to dst, made harmless: valid UTF-8, with `?` in place of
// each byte that is not, of control characters (C0, DEL, C1) and of the line and paragraph separators, because a terminal
// prints these records. It appends at most limit bytes and never a part of a character. It allocates only to grow dst.
func AppendText(dst, text []byte, limit int) []byte {
	end := len(dst) + limit
	for len(text) > 0 {
		r, size := rune(text[0]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text)
		}
		switch {
		case isControl(r), r == utf8.RuneError && size == 1:
			if len(dst) == end {
				return dst
			}
			dst = append(dst, '?')
		default:
			if len(dst)+size > end {
				return dst
			}
			dst = append(dst, text[:size]...)
		}
		text = text[size:]
	}
	return dst
}

// isControl says whether a terminal or a page might do something with the character other than show it: beside the controls also
// the invisible format characters, some of which turn the direction of what follows (Unicode category Cf).
func isControl(r rune) bool {
	return r < 0x20 || (r >= 0x7f && r <= 0x9f) || r == '\u2028' || r == '\u2029' || (r > 0x9f && unicode.Is(unicode.Cf, r))
}
