// Explains the API's error codes in sentences that say what to do, specific to the field where that is clearer.

import type { ErrorCode } from '../../domain/refusal.ts';

const general: Record<ErrorCode, string> = {
  api_does_not_exists: 'There is no such thing.',
  unauthorized: 'Your account may not do this. Ask the owner of the project.',
  account_suspended: 'Your account is suspended. Ask your administrator.',
  payment_required: 'Your account needs payment before it can do this. Ask your administrator.',
  already_exists: 'There is one with this name already. Choose another.',
  is_blank: 'This is needed. Fill it in.',
  invalid_format: 'This cannot be used as it is. Check it for typing errors.',
  resource_temporary_unavailable: 'This cannot be done right now. Try again in a moment.',
  is_reserved: 'This one is taken by the system or still in use. Choose another.',
  not_found: 'There is no such thing, or you cannot see it.',
};

const byField: Record<string, string> = {
  'repository_url invalid_format':
    'Write it as user@host:path.git, for example git@git.example.org:team/website.git.',
  'options[repository_url] invalid_format':
    'Write it as user@host:path.git, for example git@git.example.org:team/website.git.',
  'commit_ref invalid_format': 'Write the name of a branch or tag, or a commit hash of 7 to 40 digits.',
  'options[local_branch] invalid_format': 'Write the plain name of a branch, for example main.',
  'options[remote_branch] invalid_format': 'Write the plain name of a branch, for example main.',
  'options[url] invalid_format':
    'Write an address that begins with http:// or https://. This server’s own (loopback) and link-local addresses are refused, unless an administrator lists them in the setting WEBHOOK_ALLOW.',
  'name invalid_format':
    'Use one line of 255 bytes at the most; for a variable letters, digits and underscores only.',
  'name already_exists':
    'There is one with this name already; case and white space do not count. Choose another.',
  'kind invalid_format': 'Choose user or collaborator.',
  'standing invalid_format': 'Choose active, suspended or payment_required.',
  'image not_found':
    'Only host, the default and imported images can be used. An administrator brings one in with “assay image import”.',
  'image invalid_format': 'Write the name of an image, for example debian:12.',
  'email invalid_format': 'Write a whole email address, for example ada@example.org.',
  'email already_exists': 'This person is there already.',
  'email not_found': 'Email or password is wrong.',
  'confirm invalid_format': 'Type the name of the project exactly as it is.',
  'dependency_id is_blank': 'Choose a dependency.',
  'dependency_id already_exists': 'It is attached already.',
  'admin is_reserved': 'You cannot take administration from yourself. Ask another administrator.',
  'standing is_reserved': 'You cannot take away your own standing. Ask another administrator.',
  'trial_ends invalid_format': 'Write a date such as 2027-01-31.',
  'prefix invalid_format': 'Write an absolute path without spaces, for example /opt/zlib.',
  'prefix is_reserved': 'This path belongs to the system. Choose one such as /opt/zlib.',
  'command invalid_format': 'The command must contain the prefix, so that something is installed there.',
  'source invalid_format': 'Write a relative path inside the archive, without “..”.',
  'content invalid_format': 'This value cannot be kept: it is longer than 131,072 bytes, or is not text.',
  'redirect_uri invalid_format':
    'Write a whole address without a fragment, such as https://example.org/back.',
  'related_dependencies[] invalid_format': 'A dependency can relate neither to itself nor in a circle.',
  'archive invalid_format':
    'This is not an archive that can be read: use tar (gzip, bzip2, xz, zstd) or zip.',
  'archive is_blank': 'Choose an archive to upload.',
  'code invalid_format': 'This is not the code that “assay serve” printed. Check it for typing errors.',
  'password invalid_format': 'Use 8 characters or more.',
  'generic is_reserved': 'It is still in use, so it cannot be deleted.',
  'generic invalid_format': 'The form could not be read. Try again.',
};

export function errorMessage(field: string, code: ErrorCode): string {
  return byField[`${field} ${code}`] ?? general[code];
}
