// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestTextFromOutsideIsMadeHarmless(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"plain", "nginx", "nginx"},
		{"empty", "", ""},
		{"letters beyond ASCII", "naïve–π–名", "naïve–π–名"},
		{"escape sequence", "a\x1b[2Jb", "a?[2Jb"},
		{"newline and a forged line", "x\nnginx[1/1] connect failed", "x?nginx[1/1] connect failed"},
		{"carriage return, tab, NUL, DEL", "\r\t\x00\x7f", "????"},
		{"C1 as UTF-8", "a\u0085\u009bb", "a??b"},
		{"C1 as a byte", "a\x9bb", "a?b"},
		{"line and paragraph separator", "a\u2028b\u2029c", "a?b?c"},
		{"format characters that turn the direction", "a\u202e]8[nwx\u2066\ufeff", "a?]8[nwx??"},
		{"neighbours of what is replaced", "\u00a0\u2027\u202f ~", "\u00a0\u2027\u202f ~"},
		{"cut character at the end", "ab\xe5\x90", "ab??"},
		{"overlong and surrogate", "\xc0\x80\xed\xa0\x80", "?????"},
		{"the replacement character itself", "\ufffd", "\ufffd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, "> "+test.want, string(AppendText([]byte("> "), []byte(test.text), 64)))
		})
	}
}

func TestTextFromOutsideIsBoundedAtACharacter(t *testing.T) {
	assert.Equal(t, "abc", string(AppendText(nil, []byte("abcdef"), 3)))
	assert.Equal(t, "ab", string(AppendText(nil, []byte("ab名c"), 4)))
	assert.Equal(t, "ab名", string(AppendText(nil, []byte("ab名c"), 5)))
	assert.Equal(t, "a?", string(AppendText(nil, []byte("a\n\n"), 2)))
	assert.Empty(t, AppendText(nil, []byte("abc"), 0))
}

func FuzzAppendText(f *testing.F) {
	f.Add([]byte("a\x1b[2J\xffb\u2028名"), 7)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		got := AppendText(nil, text, limit)
		if len(got) > limit || !utf8.Valid(got) || bytes.ContainsFunc(got, isControl) {
			t.Fatalf("%q became %q", text, got)
		}
		if again := AppendText(nil, got, limit); !bytes.Equal(again, got) {
			t.Fatalf("%q became %q", got, again)
		}
	})
}
